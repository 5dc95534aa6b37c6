//! Applies what differs, phase by phase, several objects at once.

use std::collections::{BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use futures::StreamExt;
use knative_operator_runtime::identity::patch_as;
use knative_operator_runtime::words;
use knative_operator_shared::label::{DIGEST, FIELD_MANAGER};
use kube::Client;
use kube::api::{Patch, PatchParams};
use kube::core::{DynamicObject, ObjectMeta, PartialObjectMeta};
use serde_json::Value;

use super::differ::{Action, decide, once};
use super::inventory::Inventory;
use super::preserve::{self, Path};
use super::seen::Seen;
use super::throttle::{Leave, Throttle};
use super::{CONCURRENCY, Objects, address, api, ownership, served, takeover};
use crate::health::{GOING, Health};
use crate::kinds::Kinds;
use crate::object::ObjectId;
use crate::plan::{Item, Phase, Plan};

/// How often a write is made at once, at most, if the server asks for it.
const ATTEMPTS: usize = 4;
/// How long such a write rests, at least and at most.
const MOMENT: Duration = Duration::from_millis(250);
const LONGEST_MOMENT: Duration = Duration::from_secs(5);

/// Where a plan goes.
pub struct Target<'a> {
    /// The cluster.
    pub client: &'a Client,
    /// What is to be there.
    pub plan: &'a Plan,
    /// How kinds are addressed that neither the plan nor Kubernetes itself defines.
    pub kinds: &'a Kinds,
    /// What is seen there.
    pub seen: &'a Seen,
    /// Whether nothing was installed there before.
    pub first: bool,
    /// Whether the cluster was found to be away: nothing is tried any more.
    pub lost: AtomicBool,
    /// Definitions that were refused: what is of their kinds doesn't wait for them.
    pub refused: Mutex<HashSet<ObjectId>>,
}

impl Target<'_> {
    /// `item` was refused.
    fn refuse(&self, item: &Item) {
        if item.phase() == Phase::Definitions {
            self.refused.lock().unwrap_or_else(PoisonError::into_inner).insert(item.id.clone());
        }
    }

    /// Whether `definition` was refused, lately or now.
    pub fn is_refused(&self, definition: &Item) -> bool {
        self.refused.lock().unwrap_or_else(PoisonError::into_inner).contains(&definition.id)
    }
}

/// How it went.
#[derive(Debug, Default)]
pub struct Applied {
    /// What was written because the plan had changed.
    pub applied: Vec<ObjectId>,
    /// What was written because the cluster had changed, and who had changed it, as far as that is known.
    pub repaired: Vec<(ObjectId, Option<String>)>,
    /// What was there already, and whose it was.
    pub adopted: Vec<(ObjectId, String)>,
    /// What was refused, and why.
    pub refused: Vec<(ObjectId, String)>,
    /// What somebody keeps undoing, and who.
    pub fought: Vec<(ObjectId, Option<String>)>,
    /// Whether a phase is held back until the Deployments are available.
    pub held: bool,
}

/// The items of `plan` that differ, each with what is to be done.
pub fn differing<'p>(plan: &'p Plan, inventory: &Inventory, seen: &Seen) -> Vec<(&'p Item, Action)> {
    let action = |item: &Item| decide(once(item), &plan.digest(item), inventory.0.get(&item.id), &seen.sight(&item.id));
    plan.items().iter().map(|item| (item, action(item))).filter(|(_, action)| *action != Action::Keep).collect()
}

/// The phases that are applied together, begun in this order. Beside them go Services, which nothing waits for, and definitions, which
/// only custom objects wait for.
const TOGETHER: &[Phase] = &[Phase::Accounts, Phase::Access, Phase::Configuration, Phase::Workloads, Phase::Jobs];
/// The same where nothing was before: what Pods can't start without, then they, so that their images are pulled while the rest comes.
const FIRST: &[Phase] = &[Phase::Accounts, Phase::Configuration, Phase::Workloads, Phase::Access, Phase::Jobs];

/// Applies `todo`, step by step. Nothing stops at the first error.
/// `held`: the phases that must wait until the Deployments are `available`; they are held back if those aren't when the rest is there.
pub async fn run(
    target: &Target<'_>,
    todo: &[(&Item, Action)],
    held: &[Phase],
    available: impl Fn() -> bool,
    throttle: &mut Throttle,
) -> Applied {
    let mut outcome = Applied::default();
    let (held, now): (Vec<_>, Vec<_>) = todo.iter().partition(|(item, action)| {
        // What was there once is put right at once: what judges it may well be there, too.
        let again = *action == Action::Repair && item.phase() == Phase::Dependents;
        held.contains(&item.phase()) && !again
    });
    let now = due(target, now, throttle, &mut outcome);
    let mut written = side_by_side(target, &now).await;
    if held.is_empty() || available() {
        let held = due(target, held, throttle, &mut outcome);
        written.extend(all(target, held).await);
    } else {
        outcome.held = true;
    }
    for Written { item, action, thief, adopted, result } in written {
        match result {
            Ok(()) => {
                throttle.accept(&item.id);
                if action == Action::Repair {
                    if item.phase() == Phase::Definitions {
                        // What is of a kind goes with its definition, and comes back after it.
                        throttle
                            .pardon(|id| target.plan.find(id).is_some_and(|other| target.plan.defines(item, other)));
                    }
                    outcome.repaired.push((item.id.clone(), thief));
                    continue;
                }
                outcome.applied.push(item.id.clone());
                outcome.adopted.extend(adopted.map(|other| (item.id.clone(), other)));
            }
            Err(why) => {
                tracing::warn!(object = %item.id, why, "not applied");
                throttle.refuse(&item.id, &target.plan.digest(item), &why, Instant::now());
                outcome.refused.push((item.id.clone(), why));
            }
        }
    }
    outcome
}

/// Writes all of `due`, each only when what it needs is there.
async fn side_by_side<'i>(target: &Target<'_>, due: &[(&'i Item, Action)]) -> Vec<Written<'i>> {
    let of = |phases: &[Phase]| -> Vec<_> {
        phases.iter().flat_map(|phase| due.iter().copied().filter(move |(item, _)| item.phase() == *phase)).collect()
    };
    let (awaited, definitions) =
        of(&[Phase::Definitions]).into_iter().partition(|(item, _)| target.plan.is_awaited(item));
    let mut written = all(target, of(&[Phase::Namespaces])).await;
    let together = if target.first { FIRST } else { TOGETHER };
    // An API server establishes definitions one by one: what is waited for is begun first.
    let lanes = futures::join!(
        steps(target, [awaited, of(&[Phase::Customs])]),
        all(target, of(&[Phase::Services])),
        all(target, definitions),
        steps(target, [of(together), of(&[Phase::Webhooks]), of(&[Phase::Dependents])]),
    );
    written.extend(<[_; 4]>::from(lanes).into_iter().flatten());
    written
}

/// What of `todo` may be written: not what was refused a moment ago, or what is fought over.
fn due<'i>(
    target: &Target<'_>,
    todo: Vec<(&'i Item, Action)>,
    throttle: &mut Throttle,
    outcome: &mut Applied,
) -> Vec<(&'i Item, Action)> {
    let mut due = Vec::with_capacity(todo.len());
    for (item, action) in todo {
        // What is made while its definition goes is taken along with it: it waits for the next one, and that is no fight.
        if item.phase().is_custom() && is_going(target, item) {
            continue;
        }
        if let Some(why) = throttle.refused(&item.id, &target.plan.digest(item), Instant::now()) {
            target.refuse(item);
            outcome.refused.push((item.id.clone(), why.to_owned()));
        } else if action == Action::Repair {
            match throttle.repair(&item.id, Instant::now()) {
                Leave::Granted => due.push((item, action)),
                Leave::Exhausted => outcome.fought.push((item.id.clone(), target.seen.thief(&item.id))),
                Leave::Resting => {}
            }
        } else {
            due.push((item, action));
        }
    }
    due
}

/// Whether the definition of `item` is being deleted.
fn is_going(target: &Target<'_>, item: &Item) -> bool {
    let health = target.plan.definition_of(item).and_then(|definition| target.seen.health(&definition.id));
    matches!(health, Some(Health::Waiting(wait)) if wait.why == GOING)
}

/// What came of one write.
struct Written<'i> {
    item: &'i Item,
    action: Action,
    /// Who had taken it from us.
    thief: Option<String>,
    /// Whose it was, if it was there already and not ours.
    adopted: Option<String>,
    result: Result<(), String>,
}

/// Writes all of each step, only when all of the one before is there.
async fn steps<'i, const N: usize>(target: &Target<'_>, steps: [Vec<(&'i Item, Action)>; N]) -> Vec<Written<'i>> {
    let mut written = Vec::new();
    for due in steps {
        written.extend(all(target, due).await);
    }
    written
}

/// Writes all of `due`, several at once.
async fn all<'i>(target: &Target<'_>, due: Vec<(&'i Item, Action)>) -> Vec<Written<'i>> {
    let writes: Vec<_> = due.into_iter().map(|due| attempt(target, due)).collect();
    futures::stream::iter(writes).buffer_unordered(CONCURRENCY).collect().await
}

async fn attempt<'i>(target: &Target<'_>, (item, action): (&'i Item, Action)) -> Written<'i> {
    // Asked before: a watch may tell of the write earlier than its answer comes.
    let (ours, thief) = (target.seen.is_ours(&item.id), target.seen.thief(&item.id));
    let written = if target.lost.load(Ordering::Relaxed) {
        Err("the cluster has gone away".to_owned())
    } else {
        write(target, item).await
    };
    let adopted = written.as_ref().ok().and_then(ownership::other).filter(|_| !ours);
    let result = written.map(|meta| target.seen.written(&item.id, &meta));
    if result.is_err() {
        target.refuse(item);
    }
    Written { item, action, thief, adopted, result }
}

/// Server-side apply of one object; its metadata afterwards, or the server's words.
async fn write(target: &Target<'_>, item: &Item) -> Result<ObjectMeta, String> {
    let known = target.plan.kinds().get(&item.gvk);
    let found = match known {
        Some(kind) => Some(kind),
        None => address(target.client, target.kinds, &item.gvk).await.ok().flatten(),
    };
    let kind = found.ok_or_else(|| {
        format!("no matches for kind \"{}\" in version \"{}\"", item.gvk.kind, item.gvk.api_version())
    })?;
    let api = api(target.client, &kind, &item.id);
    let contended = preserve::is_contended(&item.id.kind, &item.id.name);
    let mut request =
        request(&api, target.plan, item, if contended { Claim::Free } else { Claim::All }).map_err(|e| words(&e))?;
    if item.phase().is_custom() {
        served::established(target, &kind).await?;
    }
    let started = Instant::now();
    let mut attempt = 0;
    let mut go = target.seen.is_go(&item.id);
    loop {
        attempt += 1;
        let answer = async {
            if go {
                take_over(&api, &item.id.name).await?;
                go = false;
            }
            match target.client.request::<PartialObjectMeta<DynamicObject>>(request.clone()).await {
                Err(error) if contended && preserve::is_conflict(&error) => {
                    request = yielding(&api, target.plan, item).await?;
                    target.client.request(request.clone()).await
                }
                answer => answer,
            }
        };
        match answer.await {
            Ok(answer) => return Ok(answer.metadata),
            Err(error) if served::is_not_served(&error) => {
                attempt -= 1;
                served::wait(target.client, &kind, started).await?;
            }
            Err(error) => {
                let Some(pause) = again(&error).filter(|_| attempt < ATTEMPTS) else {
                    if is_away(&error) {
                        target.lost.store(true, Ordering::Relaxed);
                    }
                    return Err(words(&error));
                };
                if contended && pause.is_zero() {
                    // It has changed since it was looked at.
                    request = self::request(&api, target.plan, item, Claim::Free).map_err(|e| words(&e))?;
                }
                tokio::time::sleep(pause).await;
            }
        }
    }
}

/// Which fields an apply claims.
enum Claim<'a> {
    /// All, whoever owns them.
    All,
    /// All, unless another manager owns one and has another value: then the API server answers with a conflict.
    Free,
    /// All but these, of an object with this resourceVersion.
    Except(&'a BTreeSet<Path>, Option<String>),
}

/// The request that applies `item`: ready to be sent, for many wait at once, and a tree of values takes many times the room.
fn request(api: &Objects, plan: &Plan, item: &Item, claim: Claim<'_>) -> kube::Result<http::Request<Vec<u8>>> {
    let mut object = plan.open(item);
    object["metadata"]["annotations"][DIGEST] = plan.digest(item).to_string().into();
    let mut params = PatchParams::apply(FIELD_MANAGER);
    params.force = !matches!(claim, Claim::Free);
    if let Claim::Except(taken, version) = claim {
        preserve::leave_out(&mut object, taken);
        object["metadata"]["resourceVersion"] = version.into();
    }
    kube::core::Request::new(api.resource_url())
        .patch_metadata(&item.id.name, &params, &Patch::Apply(&object))
        .map_err(kube::Error::BuildRequest)
}

/// The request that applies `item` without the fields that its own controllers have written. These are disowned first: what is no longer
/// applied but still owned would be removed.
async fn yielding(api: &Objects, plan: &Plan, item: &Item) -> kube::Result<http::Request<Vec<u8>>> {
    let mut meta = api.get_metadata(&item.id.name).await?.metadata;
    let taken = preserve::taken(&item.id.kind, &meta);
    if let Some(patch) = preserve::disown(&meta, &taken) {
        let fields: Vec<_> = taken.iter().map(preserve::shown).collect();
        tracing::info!(object = %item.id, fields = fields.join(", "), "left to the controller that writes it");
        meta = patch_managed_fields(api, &item.id.name, patch).await?;
    }
    request(api, plan, item, Claim::Except(&taken, meta.resource_version))
}

/// After which pause a write is made again at once: a race that was lost, a server that asks for a moment. Everything else
/// is for the next pass.
fn again(error: &kube::Error) -> Option<Duration> {
    let kube::Error::Api(status) = error else { return None };
    match status.code {
        409 => Some(Duration::ZERO),
        429 | 503 => {
            let asked = status.details.as_ref().map_or(1, |d| d.retry_after_seconds);
            Some(Duration::from_secs(u64::from(asked)).clamp(MOMENT, LONGEST_MOMENT))
        }
        _ => None,
    }
}

/// Whether `error` is that of a cluster which can't be reached, and not an answer of its API server.
fn is_away(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Service(_) | kube::Error::HyperError(_) | kube::Error::ReadEvents(_))
}

/// Makes the fields that the Go operator applied ours.
async fn take_over(api: &Objects, name: &str) -> kube::Result<()> {
    let Some(found) = api.get_metadata_opt(name).await? else { return Ok(()) };
    let Some(patch) = takeover::patch(&found.metadata) else { return Ok(()) };
    patch_managed_fields(api, name, patch).await.map(drop)
}

/// Sends a JSON patch of managed fields; the metadata afterwards.
async fn patch_managed_fields(api: &Objects, name: &str, patch: Value) -> kube::Result<ObjectMeta> {
    let patch = serde_json::from_value(patch).map_err(kube::Error::SerdeError)?;
    Ok(api.patch_metadata(name, &patch_as(FIELD_MANAGER), &Patch::<()>::Json(patch)).await?.metadata)
}
