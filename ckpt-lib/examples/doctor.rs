//! Prints what was found out about this machine: facts, then the platform.
fn main() {
    let begun = std::time::Instant::now();
    let host = ckpt_lib::host::Host::probe(std::path::Path::new("/var/tmp"));
    let took = begun.elapsed();
    for fact in host.facts() {
        println!(
            "{:?}\t{:?}\t{}: {}",
            fact.verdict, fact.severity, fact.title, fact.found
        );
    }
    println!("{}", ckpt_lib::platform::Platform::of_this_machine());
    println!("probed in {took:?}");
}
