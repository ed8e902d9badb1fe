//! Images that cannot be used.

use super::*;

/// A job whose copy is begun from an image.
fn restarting() -> Life {
    Life::begin(POLICY, First::Restart { may_stand: false }).0
}

#[test]
fn an_image_that_is_refused_is_passed_over_for_the_one_before() {
    let mut life = restarting();
    for _ in 0..2 {
        let actions = life.step(Event::Refused(Remains::Older), at(1));
        assert_eq!(actions, [Action::Restart]);
        assert_eq!(life.state(), State::Restarting);
    }
    assert_eq!(life.step(Event::Runs, at(2)), []);
    assert_eq!(life.state(), State::Running);
}

#[test]
fn it_begins_again_only_if_no_image_verifies_and_it_can() {
    let why = "it cannot be restarted (status 4)".to_owned();
    for (remains, outset, action) in [
        (Remains::Nothing, Some(true), Action::Start),
        (
            Remains::Nothing,
            Some(false),
            Action::Leave(held(why.clone())),
        ),
        (Remains::Nothing, None, Action::Leave(held(why.clone()))),
        (Remains::Unusable, Some(true), Action::Leave(held(why))),
    ] {
        let mut life = restarting();
        outset
            .into_iter()
            .for_each(|at_once| life.note_outset(at_once));
        assert_eq!(life.step(Event::Refused(remains), at(1)), [action]);
    }
}

#[test]
fn a_job_that_is_to_be_gone_leaves_though_there_is_an_older_image() {
    let mut life = restarting();
    assert_eq!(life.step(asked(1, Command::Kill), at(1)), [Action::Kill]);
    let actions = life.step(Event::Refused(Remains::Older), at(2));
    assert_eq!(actions, [done(1), Action::Leave(Leave::Killed)]);
}
