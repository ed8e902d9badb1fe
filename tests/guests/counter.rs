//! Rust: threads, channels, collections, a panic that is caught.
use std::collections::BTreeMap;
use std::sync::mpsc;
use std::time::Duration;

fn go() -> bool {
    std::env::var_os("WF_GO").is_none_or(|path| std::path::Path::new(&path).exists())
}

fn main() {
    std::panic::set_hook(Box::new(|_| {}));
    let (send, receive) = mpsc::sync_channel::<u64>(64);
    let consumer = std::thread::spawn(move || {
        let mut counts = BTreeMap::new();
        for value in receive {
            let square = std::panic::catch_unwind(|| {
                assert!(value % 7 != 0);
                value * value
            });
            let fine = square.is_ok();
            *counts.entry(fine).or_insert(0u64) += square.unwrap_or(value) % 1009;
        }
        counts
    });
    println!("READY");
    let mut expected = BTreeMap::new();
    let mut value = 0;
    while value < 2000 || !go() {
        value += 1;
        let fine = value % 7 != 0;
        *expected.entry(fine).or_insert(0u64) += (if fine { value * value } else { value }) % 1009;
        send.send(value).expect("the consumer lives");
        if value % 100 == 0 {
            std::thread::sleep(Duration::from_micros(100));
        }
    }
    drop(send);
    let found = consumer.join().expect("the consumer ends");
    if found == expected {
        println!("PASS");
    } else {
        println!("FAIL: counts: found {found:?}, expected {expected:?}");
        std::process::exit(1);
    }
}
