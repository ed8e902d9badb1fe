//! The functions of the language.
//!
//! Each gets its arguments unevaluated. A wrong number of arguments is ERROR, and so is a function that is not there.

mod arguments;
mod contexts;
mod conversions;
mod expressions;
mod lists;
mod numbers;
mod patterns;
mod string_lists;
mod strings;
mod times;
mod types;
mod users;
mod versions;

use crate::error::EvalError;
use crate::eval::{Evaluated, Run};
use crate::expr::Expr;
use crate::scope::Scope;
use crate::text::Text;
use crate::value::Value;
use std::sync::Arc;

/// A call that is being evaluated.
struct Call<'r, 'c> {
    run: &'r mut Run<'c>,
    arguments: &'r [Arc<Expr>],
    scope: &'r Scope,
}

type Function = fn(&mut Call<'_, '_>) -> Evaluated;

impl Call<'_, '_> {
    /// The value of an argument; it must be there.
    fn value(&mut self, at: usize) -> Evaluated {
        match self.arguments.get(at) {
            Some(argument) => self.run.eval(argument, self.scope),
            None => Ok(Value::Error),
        }
    }

    /// The values of all arguments.
    fn values(&mut self) -> Result<Vec<Value>, EvalError> {
        self.arguments
            .iter()
            .map(|argument| self.run.eval(argument, self.scope))
            .collect()
    }

    fn count(&self) -> usize {
        self.arguments.len()
    }
}

pub(crate) fn call(
    run: &mut Run<'_>,
    name: &Text,
    arguments: &[Arc<Expr>],
    scope: &Scope,
) -> Evaluated {
    let lower = name.as_bytes().to_ascii_lowercase();
    let found = std::str::from_utf8(&lower).ok().and_then(find);
    let Some((function, counts)) = found else {
        return Ok(Value::Error);
    };
    if !counts.contains(&arguments.len()) {
        return Ok(Value::Error);
    }
    function(&mut Call {
        run,
        arguments,
        scope,
    })
}

/// How many arguments a function may have.
pub(crate) type Counts = std::ops::RangeInclusive<usize>;

/// Whether there is a function of that name.
///
/// ```
/// assert!(classad::is_function("STRCAT"));
/// assert!(!classad::is_function("sqrt"));
/// ```
#[must_use]
pub fn is_function(name: &str) -> bool {
    find(&name.to_ascii_lowercase()).is_some()
}

/// How many arguments a function may have; none: there is no such function.
pub(crate) fn argument_counts(name: &str) -> Option<Counts> {
    find(&name.to_ascii_lowercase()).map(|(_, counts)| counts)
}

/// A function by its name in small letters.
fn find(name: &str) -> Option<(Function, Counts)> {
    let function: (Function, Counts) = match name {
        "isundefined" => (types::is_undefined, 1..=1),
        "iserror" => (types::is_error, 1..=1),
        "isstring" => (types::is_string, 1..=1),
        "isinteger" => (types::is_integer, 1..=1),
        "isreal" => (types::is_real, 1..=1),
        "islist" => (types::is_list, 1..=1),
        "isclassad" => (types::is_ad, 1..=1),
        "isboolean" => (types::is_boolean, 1..=1),
        "isabstime" => (types::is_abs_time, 1..=1),
        "isreltime" => (types::is_rel_time, 1..=1),
        "int" => (conversions::int, 1..=1),
        "real" => (conversions::real, 1..=1),
        "string" => (conversions::string, 1..=1),
        "bool" => (conversions::bool, 1..=1),
        "member" => (lists::member, 2..=2),
        "identicalmember" => (lists::identical_member, 2..=2),
        "size" => (lists::size, 1..=1),
        "sum" => (lists::sum, 1..=1),
        "avg" => (lists::avg, 1..=1),
        "min" => (lists::min, 1..=1),
        "max" => (lists::max, 1..=1),
        "anycompare" => (lists::any_compare, 3..=3),
        "allcompare" => (lists::all_compare, 3..=3),
        "time" => (times::time, 0..=0),
        "currenttime" => (times::current_time, 0..=0),
        "timezoneoffset" => (times::time_zone_offset, 0..=0),
        "daytime" => (times::day_time, 0..=0),
        "getyear" => (times::get_year, 1..=1),
        "getmonth" => (times::get_month, 1..=1),
        "getdayofyear" => (times::get_day_of_year, 1..=1),
        "getdayofmonth" => (times::get_day_of_month, 1..=1),
        "getdayofweek" => (times::get_day_of_week, 1..=1),
        "getdays" => (times::get_days, 1..=1),
        "gethours" => (times::get_hours, 1..=1),
        "getminutes" => (times::get_minutes, 1..=1),
        "getseconds" => (times::get_seconds, 1..=1),
        "splittime" => (times::split_time, 1..=1),
        "formattime" => (times::format_time, 0..=2),
        "abstime" => (times::abs_time, 0..=2),
        "reltime" => (times::rel_time, 1..=1),
        "interval" => (times::interval, 1..=1),
        "strcat" => (strings::strcat, 0..=usize::MAX),
        "join" => (strings::join, 0..=usize::MAX),
        "toupper" => (strings::to_upper, 1..=1),
        "tolower" => (strings::to_lower, 1..=1),
        "substr" => (strings::substr, 2..=3),
        "strcmp" => (strings::strcmp, 2..=2),
        "stricmp" => (strings::stricmp, 2..=2),
        "split" => (strings::split, 1..=2),
        "splitusername" => (strings::split_user_name, 1..=1),
        "splitslotname" => (strings::split_slot_name, 1..=1),
        "versioncmp" => (versions::compare, 2..=2),
        "versionle" => (versions::le, 2..=2),
        "versionlt" => (versions::lt, 2..=2),
        "versionge" => (versions::ge, 2..=2),
        "versiongt" => (versions::gt, 2..=2),
        "versioneq" => (versions::eq, 2..=2),
        "version_in_range" => (versions::in_range, 3..=3),
        "regexp" => (patterns::regexp, 2..=3),
        "regexpmember" => (patterns::regexp_member, 2..=3),
        "regexps" => (patterns::regexps, 3..=4),
        "replace" => (patterns::replace, 3..=4),
        "replaceall" => (patterns::replace_all, 3..=4),
        "floor" => (numbers::floor, 1..=1),
        "ceil" | "ceiling" => (numbers::ceiling, 1..=1),
        "round" => (numbers::round, 1..=1),
        "pow" => (numbers::pow, 2..=2),
        "quantize" => (numbers::quantize, 2..=2),
        "random" => (numbers::random, 0..=1),
        "unparse" => (expressions::unparse, 1..=1),
        "unresolved" => (expressions::unresolved, 1..=2),
        "ifthenelse" => (expressions::if_then_else, 3..=3),
        "eval" => (expressions::eval, 1..=1),
        "debug" => (expressions::debug, 1..=1),
        "evalineachcontext" => (contexts::eval_in_each, 2..=2),
        "countmatches" => (contexts::count_matches, 2..=2),
        "stringlistsintersect" => (string_lists::intersect, 2..=3),
        "stringlistsize" => (string_lists::size, 1..=2),
        "stringlistsum" => (string_lists::sum, 1..=2),
        "stringlistavg" => (string_lists::avg, 1..=2),
        "stringlistmin" => (string_lists::min, 1..=2),
        "stringlistmax" => (string_lists::max, 1..=2),
        "stringlistmember" => (string_lists::member, 2..=3),
        "stringlistimember" => (string_lists::member_any_case, 2..=3),
        "stringlistsubsetmatch" => (string_lists::subset, 2..=3),
        "stringlistisubsetmatch" => (string_lists::subset_any_case, 2..=3),
        "stringlist_regexpmember" => (string_lists::regexp_member, 2..=4),
        "envv1tov2" => (arguments::env_v1_to_v2, 1..=1),
        "mergeenvironment" => (arguments::merge_environment, 0..=usize::MAX),
        "listtoargs" => (arguments::list_to_args, 1..=2),
        "argstolist" => (arguments::args_to_list, 1..=2),
        "userhome" => (users::home, 1..=2),
        "usermap" => (users::map, 2..=4),
        _ => return None,
    };
    Some(function)
}
