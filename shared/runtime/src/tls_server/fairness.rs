//! Who gives way if a limit is reached: the peer that uses most of what is limited. So a peer can
//! keep out no other one, however much it asks for. Pure.

use std::cmp::Reverse;
use std::collections::HashMap;
use std::net::IpAddr;

/// What a connection uses.
#[derive(Clone, Copy, Debug)]
pub(super) struct Usage {
    /// The connection.
    pub(super) id: u64,
    /// Its peer.
    pub(super) peer: IpAddr,
    /// How much it uses.
    pub(super) amount: usize,
    /// Of connections that use as much, the one with the smallest value gives way, and of equal
    /// ones the oldest.
    pub(super) rank: u64,
}

/// The connection that gives way: of the peer that uses most, the one that uses most.
pub(super) fn largest(all: &[Usage]) -> Option<u64> {
    let totals = totals(all);
    let share = |usage: &Usage| (totals.get(&usage.peer).copied(), usage.amount, Reverse((usage.rank, usage.id)));
    all.iter().max_by_key(|usage| share(usage)).map(|usage| usage.id)
}

/// Whether no peer uses more than `peer`.
pub(super) fn uses_most(all: &[Usage], peer: IpAddr) -> bool {
    let totals = totals(all);
    totals.get(&peer) >= totals.values().max()
}

fn totals(all: &[Usage]) -> HashMap<IpAddr, usize> {
    let mut totals = HashMap::new();
    for usage in all {
        *totals.entry(usage.peer).or_default() += usage.amount;
    }
    totals
}

#[cfg(test)]
mod tests {
    use super::*;

    fn usage(id: u64, peer: u8, amount: usize, rank: u64) -> Usage {
        Usage { id, peer: IpAddr::from([10, 0, 0, peer]), amount, rank }
    }

    #[test]
    fn peer_with_most_connections_loses_its_oldest() {
        let all = [usage(1, 1, 1, 5), usage(2, 2, 1, 9), usage(3, 2, 1, 7), usage(4, 1, 1, 1), usage(5, 2, 1, 8)];
        assert_eq!(largest(&all), Some(3));
        assert_eq!(largest(&all[..1]), Some(1));
        assert_eq!(largest(&[]), None);
    }

    #[test]
    fn large_peer_loses_its_largest_connection() {
        // Peer 1 has the largest connection, peer 2 uses more.
        let all = [usage(1, 1, 50, 0), usage(2, 2, 40, 0), usage(3, 2, 30, 0)];
        assert_eq!(largest(&all), Some(2));
        assert!(uses_most(&all, all[1].peer) && !uses_most(&all, all[0].peer));
        assert!(!uses_most(&all, IpAddr::from([10, 0, 0, 9])));
        assert!(uses_most(&[], all[0].peer));
    }
}
