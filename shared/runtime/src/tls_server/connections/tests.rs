//! Who gives way at which limit.

use super::*;

const API_SERVER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 1));
const OTHER: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(10, 0, 0, 2));

fn connections(connections: usize, memory: usize) -> Arc<Connections> {
    Connections::new(Limits { connections, memory })
}

fn is_cut(slot: &Slot) -> bool {
    slot.0.cut.is_cancelled()
}

#[test]
fn newcomer_is_admitted_and_largest_peer_gives_way() {
    let all = connections(4, 0);
    let first = all.admit(API_SERVER);
    let others: Vec<Slot> = (0..20).map(|_| all.admit(OTHER)).collect();
    assert_eq!(others.iter().filter(|slot| !is_cut(slot)).count(), 3);
    let second = all.admit("::ffff:10.0.0.1".parse().unwrap());
    assert_eq!(second.0.peer, API_SERVER);
    assert!(!is_cut(&first) && !is_cut(&second) && !is_cut(&others[19]));
    assert_eq!((all.open().len(), others.iter().filter(|slot| !is_cut(slot)).count()), (4, 2));
    drop((first, others));
    assert_eq!(all.open().len(), 1);
    // With one peer only, requests in progress are protected.
    let (busy, _idle) = (second.0.begin(), all.admit(API_SERVER));
    let all_others: Vec<Slot> = (0..20).map(|_| all.admit(API_SERVER)).collect();
    assert!(!is_cut(&second) && !is_cut(&all_others[19]));
    drop(busy);
}

#[test]
fn memory_is_taken_from_those_who_use_most() {
    let all = connections(16, 100);
    let (small, large, larger) = (all.admit(API_SERVER), all.admit(OTHER), all.admit(OTHER));
    assert!(large.0.take_memory(40) && larger.0.take_memory(50));
    assert!(small.0.take_memory(10) && !is_cut(&larger));
    assert!(small.0.take_memory(10), "the largest connection of the largest peer gives way");
    assert!(is_cut(&larger) && !is_cut(&large) && !is_cut(&small));
    // The memory of the cut connection is still in use, but nobody else gives way for it.
    assert!(small.0.take_memory(10) && !is_cut(&large));
    assert!(!larger.0.take_memory(1), "it is cut");
    larger.0.return_memory(51);
    // The one that uses most is refused itself.
    assert!(!large.0.take_memory(200) && !is_cut(&small));
    large.0.return_memory(240);
    small.0.return_memory(30);
    assert_eq!(all.memory.load(Relaxed), 0);
}

#[test]
fn peer_with_most_requests_is_known() {
    let all = connections(16, 100);
    let (small, large) = (all.admit(API_SERVER), all.admit(OTHER));
    let requests = [large.0.begin(), large.0.begin(), small.0.begin()];
    assert!(large.0.has_most_requests() && !small.0.has_most_requests());
    drop(requests);
    assert!(large.0.has_most_requests() && small.0.has_most_requests());
}

#[test]
fn slow_connections_are_cut_and_idle_ones_finish() {
    let all = connections(16, 100);
    let (silent, idle, busy) = (all.admit(OTHER), all.admit(OTHER), all.admit(OTHER));
    idle.0.establish();
    drop(idle.0.begin());
    let request = busy.0.begin();
    all.end_overdue(all.now() + 60_000);
    assert!(is_cut(&silent) && !is_cut(&idle) && !idle.0.finish.is_cancelled());
    all.end_overdue(all.now() + 200_000);
    assert!(idle.0.finish.is_cancelled() && !is_cut(&idle));
    assert!(!busy.0.finish.is_cancelled() && !is_cut(&busy));
    drop(request);
    all.finish();
    assert!(busy.0.finish.is_cancelled());
}
