//! What an evaluation may ask of the world.

/// Clock, chance and system: whoever evaluates brings them.
///
/// Every method but the clock has a default that knows nothing.
///
/// ```
/// use classad::{Context, Surroundings, Value, parse_expression};
///
/// struct Noon;
/// impl Surroundings for Noon {
///     fn now(&self) -> i64 {
///         43_200
///     }
/// }
/// let value = Context::new(&Noon).eval(&parse_expression("time() + 1")?)?;
/// assert!(matches!(value, Value::Integer(43_201)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub trait Surroundings {
    /// Seconds since 1970 began in Greenwich.
    fn now(&self) -> i64;

    /// Seconds by which local clocks are ahead of Greenwich's at a moment.
    fn utc_offset(&self, at_seconds: i64) -> i32 {
        let _ = at_seconds;
        0
    }

    /// What the local time zone is called at a moment.
    fn zone_name(&self, at_seconds: i64) -> String {
        let _ = at_seconds;
        "UTC".to_owned()
    }

    /// A random number, at least 0.
    fn random(&self) -> i32 {
        0
    }

    /// A user's home directory.
    fn home(&self, user: &str) -> Option<String> {
        let _ = user;
        None
    }

    /// What a map of users has for one of them, names with commas between; none: no such map, or no such user.
    fn map_user(&self, map: &str, user: &str) -> Option<String> {
        let _ = (map, user);
        None
    }

    /// An attribute refers to itself, or evaluation is as deep as it may be, which hardly anything else leads to.
    fn circle(&self) {}

    /// What `debug()` has to say.
    fn debug(&self, message: &str) {
        let _ = message;
    }
}

/// No surroundings: it is always the beginning of 1970, and nothing is known.
#[derive(Clone, Copy, Debug, Default)]
pub struct Nowhere;

impl Surroundings for Nowhere {
    fn now(&self) -> i64 {
        0
    }
}
