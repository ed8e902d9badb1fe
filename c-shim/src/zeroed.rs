//! For tests: what lies in the job's shared mapping, as it is when that is new.

use alloc::boxed::Box;

/// A `T` of zeros. Only for what may be that: the parts of the job's table, which the kernel hands out so.
pub(crate) fn zeroed<T>() -> Box<T> {
    // SAFETY: every field of what is made with this may be zero.
    #[allow(unsafe_code)]
    unsafe {
        Box::new_zeroed().assume_init()
    }
}
