//! Remembered answers: a request that comes again gets the same one, and its effect happens once.

use crate::format::record::{AnswerRecord, ForgottenRecord, Record};
use crate::{Journal, JournalError};
use std::sync::PoisonError;

impl Journal {
    /// Remembers the answer to a numbered request. It survives the end of this process, and belongs to the epoch.
    ///
    /// # Errors
    /// [`JournalError`]; answers of more than 1 MiB are not remembered.
    pub fn remember(&self, request: u64, answer: &[u8]) -> Result<(), JournalError> {
        if answer.len() > crate::format::frame::MOST_DATA as usize {
            return Err(JournalError::Unsupported {
                what: "an answer of more than 1 MiB",
            });
        }
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        let record = Record::Answer(AnswerRecord {
            request,
            at_mark: false,
        });
        state.log.push(&record, answer)?;
        state.write_records()?;
        state.answers.insert(request, answer.to_vec());
        Ok(())
    }

    /// The answer to a request, if it has been answered in the time that is not undone.
    #[must_use]
    pub fn answer(&self, request: u64) -> Option<Vec<u8>> {
        self.lock_state().answers.get(&request).cloned()
    }

    /// The peer has the answers to all requests below this one.
    ///
    /// # Errors
    /// [`JournalError`]
    pub fn forget_answers_below(&self, below: u64) -> Result<(), JournalError> {
        let _gate = self.gate.read().unwrap_or_else(PoisonError::into_inner);
        let mut state = self.lock_state();
        state.usable()?;
        state
            .log
            .push(&Record::Forgotten(ForgottenRecord { below }), &[])?;
        state.write_records()?;
        state.answers = state.answers.split_off(&below);
        Ok(())
    }
}
