//! Jobs that move between machines: each has a root and namespaces of its own, and one has nothing but wayfarer and `/proc`.

#[path = "moving/ahead.rs"]
mod ahead;
#[path = "moving/brim.rs"]
mod brim;
#[path = "moving/chaos.rs"]
mod chaos;
#[path = "moving/confined.rs"]
mod confined;
#[path = "moving/pool.rs"]
mod pool;
#[path = "moving/prepared.rs"]
mod prepared;
#[path = "moving/room.rs"]
mod room;
#[path = "moving/sent.rs"]
mod sent;
#[path = "moving/slowed.rs"]
mod slowed;
#[path = "moving/stalled.rs"]
mod stalled;
mod support;
#[path = "moving/two_hosts.rs"]
mod two_hosts;
#[path = "moving/watched.rs"]
mod watched;
