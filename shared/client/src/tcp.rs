//! TCP connections to API servers and proxies.

use std::time::Duration;

use hyper_util::client::legacy::connect::HttpConnector;

/// Time limit of a connection attempt.
pub const CONNECT_TIMEOUT: Duration = Duration::from_secs(5);
/// Idle time before the kernel probes a connection, the interval of probes, and their number. A
/// connection whose packets are dropped silently ends within the sum, and its watch continues on
/// another one.
const KEEPALIVE: (Duration, Duration, u32) = (Duration::from_secs(15), Duration::from_secs(5), 3);
/// Time after which a connection ends whose peer doesn't acknowledge what was sent.
const USER_TIMEOUT: Duration = Duration::from_secs(20);

/// Connects, and probes idle connections.
pub fn tcp() -> HttpConnector {
    let mut tcp = HttpConnector::new();
    tcp.enforce_http(false);
    tcp.set_nodelay(true);
    tcp.set_connect_timeout(Some(CONNECT_TIMEOUT));
    let (idle, interval, retries) = KEEPALIVE;
    tcp.set_keepalive(Some(idle));
    tcp.set_keepalive_interval(Some(interval));
    tcp.set_keepalive_retries(Some(retries));
    tcp.set_tcp_user_timeout(Some(USER_TIMEOUT));
    tcp
}
