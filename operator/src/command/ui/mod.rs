//! `knative-operator ui`: a local, read-only web page with the state of a hub. It has the rights of
//! the user, and changes nothing.

mod assets;
mod detail;
mod guard;
mod live;
mod routes;

use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::process::ExitCode;
use std::sync::Arc;

use knative_operator_runtime::user::UserArgs;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::output::{self, PROGRAM};
use super::release_args::ReleaseArgs;
use super::status::follow;
use detail::Details;
use guard::Guard;

/// Flags of `ui`.
#[derive(Clone, Debug, clap::Args)]
pub struct UiArgs {
    #[command(flatten)]
    user: UserArgs,
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
    match output::runtime().and_then(|runtime| runtime.block_on(serve(args))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            let _ = writeln!(std::io::stderr(), "error: {error}");
            ExitCode::from(2)
        }
    }
}

async fn serve(args: UiArgs) -> Result<(), String> {
    let (client, namespace) = args.user.client(PROGRAM).await?;
    let all = !args.user.has_namespace();
    let mut follower = follow(&client, &namespace, all);
    follower.listed().await?;
    let address = SocketAddr::from((Ipv4Addr::LOCALHOST, args.port));
    let failed = |error: std::io::Error| format!("cannot listen on {address}: {error}");
    let listener = TcpListener::bind(address).await.map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    let (guard, token) = Guard::new(port)?;
    let (live, updates) = live::start(follower, client.clone());
    let _live = AbortOnDropHandle::new(live);
    let details = Details { client, user: args.user, releases: args.releases, updates: Arc::clone(&updates) };
    let router = routes::router(Arc::new(guard), Arc::new(details), updates);
    let url = format!("http://127.0.0.1:{port}/?token={token}");
    output::print(&format!("Open this URL once; the token is valid for one browser:\n{url}\nPress Ctrl+C to stop.\n"));
    if !args.no_open && open::that_detached(&url).is_err() {
        let _ = writeln!(std::io::stderr(), "cannot open a browser; open the URL by hand");
    }
    let stopped = async { drop(tokio::signal::ctrl_c().await) };
    tokio::select! {
        // Open streams of events would delay a graceful end.
        served = axum::serve(listener, router) => served.map_err(|error| format!("cannot serve: {error}")),
        () = stopped => Ok(()),
    }
}
