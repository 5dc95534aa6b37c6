//! `knative-operator status --watch`: frames on a terminal, lines elsewhere.

use std::collections::HashMap;
use std::io::Write as _;
use std::process::ExitCode;
use std::time::Duration;

use console::{Term, truncate_str};
use jiff::Timestamp;
use knative_operator_shared::text::one_line;

use super::line::Style;
use super::{StatusArgs, exit_code};
use crate::command::output;
use crate::command::terminal::visible;
use knative_operator_overview::follow::Follower;
use knative_operator_overview::{Overview, overview};

/// Minimum interval between two frames.
const INTERVAL: Duration = Duration::from_millis(100);
/// Interval of frames without changes, which show the time that passed.
const REFRESH: Duration = Duration::from_secs(5);

/// Prints each change until Ctrl+C.
pub async fn run(mut follower: Follower, args: &StatusArgs) -> Result<ExitCode, String> {
    let (term, style) = (Term::stdout(), Style::of_stdout());
    let redraws = term.is_term() && args.output.is_text();
    let (mut last, mut lines, mut shown) = (String::new(), HashMap::new(), 0);
    let mut stop = std::pin::pin!(tokio::signal::ctrl_c());
    loop {
        let current = overview(follower.snapshot(), Timestamp::now());
        if redraws {
            let mut frame = args.text(&current, &style);
            if let Some(error) = follower.disconnected() {
                frame += &style.lines("\n", "", &format!("Reconnecting to the API server: {}", one_line(error)));
            }
            shown = draw(&term, &frame, shown).map_err(|error| format!("cannot write to the terminal: {error}"))?;
        } else if args.output.is_text() {
            output::print(&changed_lines(&current, &mut lines));
        } else {
            let text = args.text(&current, &style);
            if text != last {
                args.output.write(&text);
                last = text;
            }
        }
        let _ = std::io::stdout().flush();
        tokio::select! {
            _ = &mut stop => return Ok(exit_code(&current)),
            () = follower.changed() => {}
            () = tokio::time::sleep(REFRESH) => {}
        }
        // Changes come in bursts.
        let _ = tokio::time::timeout(INTERVAL, async {
            loop {
                follower.changed().await;
            }
        })
        .await;
    }
}

/// Replaces the last frame, which had `shown` lines. Lines that don't fit are left out.
fn draw(term: &Term, frame: &str, shown: usize) -> std::io::Result<usize> {
    let (height, width) = term.size();
    let height = usize::from(height).saturating_sub(1).max(1);
    let frame = visible(frame);
    let lines: Vec<&str> = frame.lines().collect();
    let is_cut = lines.len() > height;
    term.clear_last_lines(shown)?;
    for line in lines.iter().take(if is_cut { height - 1 } else { height }) {
        term.write_line(&truncate_str(line, usize::from(width), "…"))?;
    }
    if is_cut {
        term.write_line(&format!("… {} more lines; use a higher terminal, or -o json", lines.len() - height + 1))?;
    }
    Ok(lines.len().min(height))
}

/// A line for each component and fleet that changed.
fn changed_lines(overview: &Overview, before: &mut HashMap<String, String>) -> String {
    let fleets = overview.fleets.iter().map(|fleet| {
        (
            format!("KnativeFleet {}/{}", fleet.namespace, fleet.name),
            format!("{}: {}", fleet.reason, one_line(&fleet.message)),
        )
    });
    let components = overview.clusters.iter().flat_map(|cluster| {
        cluster.components.iter().map(|component| {
            let problem = component
                .problem
                .as_ref()
                .map(|problem| format!(": {}: {}", problem.reason, one_line(&problem.message)));
            let version = component.version.as_deref().unwrap_or("(no version yet)");
            let target = component.target_version.as_ref().map(|target| format!(" -> {target}")).unwrap_or_default();
            (
                format!("{} {}/{} on {}", component.kind, component.namespace, component.name, cluster.id),
                format!("{version}{target} {}{}", component.state.as_str(), problem.unwrap_or_default()),
            )
        })
    });
    let now: HashMap<String, String> = fleets.chain(components).collect();
    let time = Timestamp::now().strftime("%H:%M:%S").to_string();
    let mut lines: Vec<String> = now
        .iter()
        .filter(|(name, text)| before.get(*name) != Some(text))
        .map(|(name, text)| format!("{time} {name}: {text}\n"))
        .collect();
    lines.extend(before.keys().filter(|name| !now.contains_key(*name)).map(|name| format!("{time} {name}: deleted\n")));
    lines.sort();
    *before = now;
    lines.concat()
}
