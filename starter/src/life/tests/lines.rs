//! A line that is cut.

use super::*;

#[test]
fn a_job_whose_line_is_cut_is_reconnecting_until_there_is_another() {
    let mut life = with_image();
    assert_eq!(life.step(Event::Cut, at(110)), []);
    assert_eq!(life.state(), State::Reconnecting);
    assert_eq!(life.step(Event::Stopped, at(111)), []);
    assert_eq!(life.state(), State::Reconnecting);
    assert_eq!(life.step(Event::Joined, at(112)), []);
    assert_eq!(life.state(), State::Suspended);
    life.step(Event::Continued, at(113));
    assert_eq!(life.state(), State::Running);
}

#[test]
fn no_checkpoint_is_due_while_a_line_is_cut_but_work_counts() {
    let mut life = with_image();
    life.step(Event::Cut, at(110));
    assert_eq!(life.step(Event::Time, at(300)), []);
    life.step(Event::Joined, at(301));
    let actions = life.step(Event::Time, at(301));
    assert_eq!(actions, [Action::Checkpoint { leaves: false }]);
    life.step(Event::Cut, at(302));
    assert_eq!(life.state(), State::Checkpointing);
    life.step(Event::Checkpointed(Err("no line".to_owned())), at(303));
    assert_eq!(life.state(), State::Reconnecting);
}

#[test]
fn a_job_that_is_not_reached_any_more_goes_on_from_its_image_and_the_next_copy_has_a_line() {
    let mut life = with_image();
    life.step(Event::Cut, at(110));
    let actions = life.step(Event::Ended(End::Gone), at(120));
    assert_eq!(actions, [Action::Restart]);
    life.step(Event::Runs, at(121));
    assert_eq!(life.state(), State::Running);
}

#[test]
fn a_job_whose_line_is_cut_is_killed_when_that_is_asked_for() {
    let mut life = with_image();
    life.step(Event::Cut, at(110));
    assert_eq!(life.step(asked(1, Command::Kill), at(111)), [Action::Kill]);
    let actions = life.step(Event::Ended(End::Gone), at(112));
    assert_eq!(actions, [done(1), Action::Leave(Leave::Killed)]);
}
