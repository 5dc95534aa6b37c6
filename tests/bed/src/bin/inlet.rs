//! Forwards connections out of a network namespace: `inlet ADDRESS=SOCKET[,ADDRESS=SOCKET…]`
//! listens on each TCP address, prints an empty line, and forwards each connection to the Unix
//! socket.

use std::io;
use std::net::{Shutdown, TcpListener, TcpStream};
use std::os::unix::net::UnixStream;
use std::thread;

fn main() -> io::Result<()> {
    let forwards = std::env::args().nth(1).unwrap_or_default();
    for (address, socket) in forwards.split(',').filter_map(|pair| pair.split_once('=')) {
        let (listener, socket) = (TcpListener::bind(address)?, socket.to_owned());
        thread::spawn(move || {
            for inside in listener.incoming().flatten() {
                if let Err(error) = UnixStream::connect(&socket).and_then(|outside| forward(inside, outside)) {
                    eprintln!("{socket}: {error}");
                }
            }
        });
    }
    println!();
    // Until it is killed.
    loop {
        thread::park();
    }
}

/// Copies in both directions, in two threads.
fn forward(inside: TcpStream, outside: UnixStream) -> io::Result<()> {
    let (mut from, mut to) = (inside.try_clone()?, outside.try_clone()?);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    let (mut from, mut to) = (outside, inside);
    thread::spawn(move || {
        let _ = io::copy(&mut from, &mut to);
        let _ = to.shutdown(Shutdown::Write);
    });
    Ok(())
}
