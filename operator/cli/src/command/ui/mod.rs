//! `knative-operator ui`: a local, read-only web page with the state of a hub. It has the rights of
//! the user, and changes nothing.

mod assets;
mod detail;
mod guard;
mod live;
mod redirect;
mod routes;

use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_runtime::signal;
use knative_operator_runtime::user::{Connection, Namespaces, UserArgs, namespace_of_hub};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::output;
use super::release_args::ReleaseArgs;
use detail::Details;
use guard::Guard;
use knative_operator_overview::follow::Follower;
use redirect::Redirect;

/// Flags of `ui`.
#[derive(Clone, Debug, clap::Args)]
#[command(mut_arg("user-namespace", namespace_of_hub))]
pub struct UiArgs {
    #[command(flatten)]
    user: UserArgs,
    #[command(flatten)]
    namespaces: Namespaces,
    /// Port on 127.0.0.1. Defaults to a free one.
    #[arg(long, default_value_t = 0, value_name = "NUMBER")]
    port: u16,
    /// Only print the URL; don't open a browser.
    #[arg(long)]
    no_open: bool,
    /// Source of releases, to show what a resource renders to.
    #[command(flatten)]
    releases: ReleaseArgs,
}

/// Serves the page until Ctrl+C. Exit status: 0, or 2 for an error.
pub fn run(args: UiArgs) -> ExitCode {
    let user = args.user.clone();
    output::run_on(&user, |connection| async move { serve(args, connection).await.map(|()| ExitCode::SUCCESS) })
}

async fn serve(args: UiArgs, connection: Connection) -> Result<(), String> {
    let Connection { client, namespace, server } = connection;
    let namespace = args.namespaces.only(&namespace).filter(|_| args.user.has_namespace());
    let mut follower = Follower::start(&client, namespace);
    follower.listed().await.map_err(|error| error.to_string())?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let failed = |error: std::io::Error| format!("cannot listen on {address}: {error}");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (guard, token) = Guard::new(port)?;
    let exchanged = guard.exchanged();
    let (live, updates) = live::start(follower, client.clone(), &server).await;
    let _live = AbortOnDropHandle::new(live);
    let details = Details { client, user: args.user, releases: args.releases, updates: Arc::clone(&updates) };
    let router = routes::router(Arc::new(guard), Arc::new(details), updates);
    let url = format!("http://127.0.0.1:{port}/?token={token}");
    output::print(&format!("Open this URL once; the token is valid for one browser:\n{url}\nPress Ctrl+C to stop.\n"));
    let redirect = if args.no_open { None } else { open_browser(&url) };
    // The file is deleted once it was used, or at the end.
    let used = async move {
        exchanged.cancelled().await;
        drop(redirect);
        std::future::pending::<()>().await;
    };
    let stop = signal::stop().map_err(|error| format!("cannot handle signals: {error}"))?;
    tokio::select! {
        // Open streams of events would delay a graceful end.
        served = axum::serve(listener, router) => served.map_err(|error| format!("cannot serve: {error}")),
        () = stop.cancelled() => Ok(()),
        () = used => Ok(()),
    }
}

/// Opens the browser. The file that redirects it must be there until the browser has read it.
fn open_browser(url: &str) -> Option<Redirect> {
    let opened = Redirect::create(url).and_then(|redirect| open::that_detached(redirect.path()).map(|()| redirect));
    if opened.is_err() {
        output::report("cannot open a browser; open the URL by hand");
    }
    opened.ok()
}
