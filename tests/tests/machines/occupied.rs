//! Ports that are in use on all addresses, and another clone.

use std::net::{Ipv4Addr, Ipv6Addr, TcpListener};

use knative_operator_tests::{Result, ports};

use super::machine::{LONG, SHORT, on_a_machine};

/// Ports of the fixture, and of what people run.
fn ports_of_others() -> impl Iterator<Item = u16> {
    ports::ALL.iter().map(|(port, _)| *port).chain([80, 443, 8080, 9443, 10248, 10250])
}

fn occupy(port: u16) -> Result<Vec<TcpListener>> {
    // Where IPv6 is available, a listener of IPv6 takes IPv4, too.
    let both = TcpListener::bind((Ipv6Addr::UNSPECIFIED, port));
    both.or_else(|_| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))).map(|one| vec![one]).map_err(Into::into)
}

#[test]
fn a_port_in_use_on_all_addresses_is_named_in_one_line() {
    on_a_machine(|machine| {
        for (port, purpose) in ports::ALL {
            let taken = TcpListener::bind((Ipv4Addr::UNSPECIFIED, port))?;
            let (well, output) = machine.cluster(&["up", "--product"], SHORT)?;
            assert!(!well, "{output}");
            assert_eq!(output.lines().count(), 1, "{output}");
            assert!(output.contains(&format!("port {port} ({purpose}) is in use on all addresses by ")), "{output}");
            assert!(output.contains(&format!("(process {})", std::process::id())), "{output}");
            drop(taken);
            machine.idle()?;
        }
        // The port of the webhook's Service is one of several.
        let _taken = [443, 9443].map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, port)).unwrap());
        machine.up_and_down(&[], &["--product"]).map(drop)
    });
}

#[test]
fn in_a_network_of_its_own_no_port_of_the_machine_matters() {
    on_a_machine(|machine| {
        let _taken = ports_of_others().map(occupy).collect::<Result<Vec<_>>>()?;
        let (well, output) = machine.run(machine.cluster_after(&["isolate"], &["up", "--product"])?, LONG)?;
        assert!(well, "{output}");
        // All ports that it listens on are in the list, apart from those that the system chose.
        let pid = std::fs::read_to_string(machine.path("clusters/pid"))?;
        let known = |port: u16| port == 443 || port >= 32768 || ports::ALL.iter().any(|(other, _)| *other == port);
        let mut found = Vec::new();
        for name in ["tcp", "tcp6"] {
            let table = std::fs::read_to_string(format!("/proc/{pid}/net/{name}")).unwrap_or_default();
            found.extend(ports::listeners(&table).map(|listener| listener.port));
        }
        assert!(found.contains(&ports::API_SERVER), "{found:?}");
        found.retain(|port| !known(*port));
        assert!(found.is_empty(), "not in ports::ALL: {found:?}");
        Ok(())
    });
}

#[test]
fn two_clones_run_at_the_same_time() {
    on_a_machine(|machine| {
        let mut other = machine.cluster_in("other", &["up"])?.spawn()?;
        let (well, output) = machine.cluster(&["up"], LONG)?;
        assert!(well, "{output}");
        assert_eq!(super::machine::ends(&mut other, LONG)?, Some(true));
        let server = |folder: &str| -> Result<String> {
            let text = std::fs::read_to_string(machine.path(folder).join("hub.kubeconfig"))?;
            Ok(text.split("https://").nth(1).and_then(|rest| rest.split('"').next()).unwrap_or_default().to_owned())
        };
        assert_ne!(server("clusters")?, server("other")?);
        let (well, output) = machine.run(machine.cluster_in("other", &["down"])?, LONG)?;
        assert!(well, "{output}");
        Ok(())
    });
}
