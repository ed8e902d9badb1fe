//! A way that takes time: what comes in at one end goes out at the other a little later, however much it is.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

/// To a port of this machine; each connection has its own threads, which end with it.
pub(super) struct Delay {
    pub(super) port: u16,
}

impl Delay {
    pub(super) fn start(target: u16, delay: Duration) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        thread::spawn(move || {
            for ours in listener.incoming().flatten() {
                let Ok(theirs) = TcpStream::connect(("127.0.0.1", target)) else {
                    continue;
                };
                for end in [&ours, &theirs] {
                    end.set_nodelay(true).expect("sets");
                }
                let (back, forth) = (ours.try_clone(), theirs.try_clone());
                carry(ours, forth.expect("one more"), delay);
                carry(theirs, back.expect("one more"), delay);
            }
        });
        Delay { port }
    }
}

fn carry(mut from: TcpStream, mut to: TcpStream, delay: Duration) {
    let (sender, receiver) = mpsc::sync_channel::<(Instant, Vec<u8>)>(4096);
    thread::spawn(move || {
        let mut room = vec![0; 256 << 10];
        while let Ok(len @ 1..) = from.read(&mut room) {
            if sender
                .send((Instant::now() + delay, room[..len].to_vec()))
                .is_err()
            {
                return;
            }
        }
    });
    thread::spawn(move || {
        for (due, bytes) in receiver {
            thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

/// Nobody listens there now.
pub(super) fn free_port() -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    listener.local_addr().expect("an address").port()
}

/// Until somebody does.
pub(super) fn wait_for(port: u16) {
    let end = Instant::now() + Duration::from_secs(10);
    while TcpStream::connect(("127.0.0.1", port)).is_err() {
        assert!(Instant::now() < end, "nobody listens on port {port}");
        thread::sleep(Duration::from_millis(10));
    }
}
