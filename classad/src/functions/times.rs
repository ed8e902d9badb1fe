//! Functions of moments and spans.

use super::Call;
use super::conversions::to_integer;
use crate::ad::ClassAd;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::expr::Expr;
use crate::number::{low_half, truncate_short};
use crate::scope::Scope;
use crate::time::{Fields, Span, format};
use crate::value::{AbsTime, Value};
use std::sync::Arc;

pub(super) fn time(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(Value::Integer(call.now()))
}

pub(super) fn current_time(call: &mut Call<'_, '_>) -> Evaluated {
    let now = call.now();
    Ok(Value::AbsTime(call.here(now)))
}

pub(super) fn time_zone_offset(call: &mut Call<'_, '_>) -> Evaluated {
    let now = call.now();
    Ok(Value::RelTime(call.here(now).offset_seconds.into()))
}

pub(super) fn day_time(call: &mut Call<'_, '_>) -> Evaluated {
    let now = call.now();
    let fields = local(call.here(now));
    Ok(Value::RelTime(
        (fields.hour * 3600 + fields.minute * 60 + fields.second) as f64,
    ))
}

impl Call<'_, '_> {
    fn now(&self) -> i64 {
        self.run.context.surroundings().now()
    }

    /// A moment, told by local clocks.
    fn here(&self, seconds: i64) -> AbsTime {
        AbsTime {
            seconds,
            offset_seconds: self.run.context.surroundings().utc_offset(seconds),
        }
    }

    /// What a moment's date, or a span, has to say.
    fn field(
        &mut self,
        of_date: fn(&Fields) -> Option<i64>,
        of_span: fn(&Span) -> Option<i32>,
    ) -> Evaluated {
        let number = match self.value(0)? {
            Value::AbsTime(time) => of_date(&local(self.here(time.seconds))),
            Value::RelTime(seconds) => of_span(&Span::of(seconds)).map(i64::from),
            _ => None,
        };
        Ok(number.map_or(Value::Error, Value::Integer))
    }
}

fn local(time: AbsTime) -> Fields {
    Fields::of(time.seconds.saturating_add(time.offset_seconds.into()))
}

pub(super) fn get_year(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.year), |_| None)
}

pub(super) fn get_month(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.month), |_| None)
}

pub(super) fn get_day_of_year(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.day_of_year()), |_| None)
}

pub(super) fn get_day_of_month(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.day), |_| None)
}

pub(super) fn get_day_of_week(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.day_of_week()), |_| None)
}

pub(super) fn get_days(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|_| None, |span| Some(span.days))
}

pub(super) fn get_hours(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.hour), |span| Some(span.hours))
}

pub(super) fn get_minutes(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.minute), |span| Some(span.minutes))
}

pub(super) fn get_seconds(call: &mut Call<'_, '_>) -> Evaluated {
    call.field(|date| Some(date.second), |span| Some(span.seconds))
}

/// A number taken for a moment: 32 bits of a real, as the original's conversion leaves them.
fn moment(call: &Call<'_, '_>, value: &Value) -> Option<AbsTime> {
    match value {
        Value::Integer(seconds) => Some(call.here(*seconds)),
        Value::Real(seconds) => Some(call.here(truncate_short(*seconds).into())),
        Value::AbsTime(time) => Some(*time),
        _ => None,
    }
}

pub(super) fn split_time(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    let ad: ClassAd = match &value {
        Value::Undefined => return Ok(Value::Undefined),
        Value::RelTime(seconds) => {
            let span = Span::of(seconds.abs());
            let [mut days, mut hours, mut minutes] =
                [span.days, span.hours, span.minutes].map(i64::from);
            let mut rest = f64::from(span.seconds) + span.fraction;
            if *seconds < 0.0 {
                // The sign is at the largest unit.
                match (days, hours, minutes) {
                    (1.., ..) => days = -days,
                    (_, 1.., _) => hours = -hours,
                    (.., 1..) => minutes = -minutes,
                    _ => rest = -rest,
                }
            }
            let mut ad: ClassAd = [("Days", days), ("Hours", hours), ("Minutes", minutes)]
                .into_iter()
                .map(|(name, number)| (name, Expr::from(number)))
                .collect();
            ad.insert("Type", Expr::from("RelativeTime"));
            ad.insert("Seconds", Expr::from(rest));
            ad
        }
        other => {
            let Some(time) = moment(call, other) else {
                return Ok(Value::Error);
            };
            let date = local(time);
            let mut ad: ClassAd = [
                ("Year", date.year),
                ("Month", date.month),
                ("Day", date.day),
                ("Hours", date.hour),
                ("Minutes", date.minute),
                ("Seconds", date.second),
                ("Offset", time.offset_seconds.into()),
            ]
            .into_iter()
            .map(|(name, number)| (name, Expr::from(number)))
            .collect();
            ad.insert("Type", Expr::from("AbsoluteTime"));
            ad
        }
    };
    Ok(Value::Ad(Scope::of(Arc::new(ad))))
}

pub(super) fn format_time(call: &mut Call<'_, '_>) -> Evaluated {
    let (fields, at) = if call.count() == 0 {
        let now = call.now();
        (local(call.here(now)), now)
    } else {
        match call.value(0)? {
            Value::Ad(scope) => (fields_of(call, &scope)?, 0),
            other => match moment(call, &other) {
                Some(time) => (local(time), time.seconds),
                None => return Ok(Value::Error),
            },
        }
    };
    let pattern = match call.count() {
        0 | 1 => b"%c".to_vec(),
        _ => match call.value(1)? {
            Value::String(text) => text.into_bytes(),
            _ => return Ok(Value::Error),
        },
    };
    let zone = call.run.context.surroundings().zone_name(at);
    let text = format(&pattern, &fields, &zone);
    call.run.room(text.len())?;
    Ok(text.into())
}

/// The date that an ad of `splitTime` has.
fn fields_of(call: &mut Call<'_, '_>, scope: &Scope) -> Result<Fields, EvalError> {
    let mut number = |name: &str, without: i64| -> Result<i64, EvalError> {
        let value = match scope.ad().get(name) {
            Some(expr) => call.run.eval_found(&Arc::clone(expr), scope)?,
            None => Value::Undefined,
        };
        Ok(match value {
            Value::Integer(number) => low_half(number).into(),
            _ => without,
        })
    };
    Ok(Fields {
        year: number("Year", 1900)?,
        month: number("Month", 1)?,
        day: number("Day", 0)?,
        hour: number("Hours", 0)?,
        minute: number("Minutes", 0)?,
        second: number("Seconds", 0)?,
    })
}

pub(super) fn abs_time(call: &mut Call<'_, '_>) -> Evaluated {
    if call.count() == 0 {
        return current_time(call);
    }
    let value = call.value(0)?;
    let mut offset = None;
    if call.count() == 2 {
        offset = match call.value(1)? {
            Value::Integer(number) => Some(low_half(number)),
            Value::Real(number) | Value::RelTime(number) => Some(truncate_short(number)),
            _ => return Ok(Value::Error),
        };
    }
    let seconds = match value {
        Value::Integer(number) => low_half(number),
        Value::Real(number) | Value::RelTime(number) => truncate_short(number),
        // A string that is not written out stays one.
        other @ (Value::AbsTime(_) | Value::String(_) | Value::Undefined) => return Ok(other),
        _ => return Ok(Value::Error),
    };
    let mut time = call.here(seconds.into());
    time.offset_seconds = offset.unwrap_or(time.offset_seconds);
    if time.offset_seconds == -1 && matches!(value, Value::Integer(_)) {
        return Err(EvalError::NoTimeZone);
    }
    Ok(Value::AbsTime(time))
}

pub(super) fn rel_time(call: &mut Call<'_, '_>) -> Evaluated {
    Ok(match call.value(0)? {
        Value::Integer(number) => Value::RelTime(low_half(number).into()),
        Value::Real(number) | Value::RelTime(number) => Value::RelTime(number),
        Value::AbsTime(time) => Value::RelTime(time.seconds as f64),
        // A string that is not written out is no time.
        Value::String(_) => Value::RelTime(0.0),
        Value::Undefined => Value::Undefined,
        _ => Value::Error,
    })
}

pub(super) fn interval(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    let Value::Integer(seconds) = to_integer(&value) else {
        return Ok(Value::Error);
    };
    let seconds = low_half(seconds);
    let (days, hours) = (seconds / 86_400, seconds % 86_400 / 3600);
    let (minutes, rest) = (seconds % 3600 / 60, seconds % 60);
    let text = if days != 0 {
        format!(
            "{days}+{:02}:{:02}:{:02}",
            hours.abs(),
            minutes.abs(),
            rest.abs()
        )
    } else if hours != 0 {
        format!("{hours}:{:02}:{:02}", minutes.abs(), rest.abs())
    } else if minutes != 0 {
        format!("{minutes}:{:02}", rest.abs())
    } else {
        rest.to_string()
    };
    Ok(Value::String(text.into()))
}
