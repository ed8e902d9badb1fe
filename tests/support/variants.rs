//! What is done to every guest, as whom, and beside how many busy threads.

use super::scenario::{Mode, Variant};
use super::user::User;

/// The variants every guest goes through; all combinations with `WF_FULL`.
pub fn variants() -> Vec<Variant> {
    let one = |mode, user, threads| Variant {
        mode,
        user,
        threads,
    };
    if !is_full() {
        return vec![
            one(Mode::Undisturbed, User::Ordinary, 0),
            one(Mode::Supervised, User::Ordinary, 0),
            one(Mode::GoOn, User::Ordinary, 0),
            one(Mode::KillRestart, User::Root, 0),
            one(Mode::KillRestart, User::Ordinary, 8),
            one(Mode::EmptyHost, User::Ordinary, 0),
            one(Mode::TenTimes, User::Ordinary, 1),
        ];
    }
    let mut all = vec![one(Mode::Undisturbed, User::Ordinary, 0)];
    for user in [User::Ordinary, User::Root] {
        for threads in [0, 1, 8] {
            for mode in [
                Mode::GoOn,
                Mode::KillRestart,
                Mode::EmptyHost,
                Mode::TenTimes,
            ] {
                all.push(one(mode, user, threads));
            }
        }
    }
    all
}

/// Whether everything is wanted, however long it takes (`WF_FULL`).
pub fn is_full() -> bool {
    std::env::var_os("WF_FULL").is_some()
}
