//! Images that somebody does not want.

use super::*;

const ENDED: &str = "it was aborted";

fn ended() -> Event {
    Event::Checkpointed(Err(ENDED.to_owned()))
}

#[test]
fn an_image_that_is_aborted_is_not_tried_again_before_the_next_is_due() {
    let mut life = running(POLICY);
    let none = life.step(asked(1, Command::Abort), at(2));
    assert_eq!(none, [refused(1, "no image of the job is being made")]);
    life.step(Event::Time, at(101));
    let aborted = life.step(asked(2, Command::Abort), at(102));
    assert_eq!(aborted, [Action::AbortCheckpoint]);
    assert_eq!(life.state(), State::Checkpointing);
    // Who has asked for the next one gets it.
    assert_eq!(life.step(asked(3, Command::Checkpoint), at(102)), []);
    let next = life.step(ended(), at(103));
    assert_eq!(next, [done(2), Action::Checkpoint { leaves: false }]);
    life.step(asked(4, Command::Abort), at(104));
    let told = life.step(ended(), at(105));
    assert_eq!(told, [done(4), refused(3, ENDED)]);
    assert_eq!(life.state(), State::Running);
    assert_eq!(life.wake_at(at(105)), Some(at(205)));
}

#[test]
fn an_image_that_is_made_is_not_aborted() {
    let mut life = running(POLICY);
    life.step(Event::Time, at(101));
    life.step(asked(1, Command::Abort), at(102));
    let made = life.step(Event::Checkpointed(Ok(())), at(103));
    assert_eq!(made, [refused(1, "the image had been made already")]);
    assert!(life.has_image());
}

#[test]
fn a_job_whose_last_image_is_aborted_stays_unless_it_is_to_leave_by_all_means() {
    let mut life = running(POLICY);
    life.step(asked(1, vacate(None, false)), at(2));
    assert_eq!(life.state(), State::Vacating);
    let aborted = life.step(asked(2, Command::Abort), at(3));
    assert_eq!(aborted, [Action::AbortCheckpoint]);
    let stays = life.step(ended(), at(4));
    assert_eq!(stays, [done(2), refused(1, ENDED)]);
    assert_eq!(life.state(), State::Running);

    life.step(asked(3, vacate(Some(60), true)), at(5));
    life.step(asked(4, Command::Abort), at(6));
    assert_eq!(life.step(ended(), at(7)), [done(4)]);
    assert_eq!(life.state(), State::Vacating);
    let again = life.wake_at(at(7)).expect("is tried again");
    let begun = life.step(Event::Time, again);
    assert_eq!(begun, [Action::Checkpoint { leaves: true }]);
}

#[test]
fn a_job_that_ends_while_its_image_is_aborted_has_ended() {
    let mut life = running(POLICY);
    life.step(Event::Time, at(101));
    life.step(asked(1, Command::Abort), at(102));
    let end = Event::Ended(End::Exited(0));
    assert_eq!(life.step(end, at(103)), []);
    let completed = Action::Leave(Leave::Completed(End::Exited(0)));
    assert_eq!(life.step(ended(), at(104)), [done(1), completed]);
}
