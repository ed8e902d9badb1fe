//! Functions of numbers.

use super::Call;
use super::conversions::to_real;
use crate::error::EvalError;
use crate::eval::Evaluated;
use crate::number::{low_half, truncate};
use crate::value::Value;

pub(super) fn floor(call: &mut Call<'_, '_>) -> Evaluated {
    whole(call, f64::floor)
}

pub(super) fn ceiling(call: &mut Call<'_, '_>) -> Evaluated {
    whole(call, f64::ceil)
}

/// Halves go to the even neighbour.
pub(super) fn round(call: &mut Call<'_, '_>) -> Evaluated {
    whole(call, f64::round_ties_even)
}

fn whole(call: &mut Call<'_, '_>, round: fn(f64) -> f64) -> Evaluated {
    let value = call.value(0)?;
    if matches!(value, Value::Integer(_)) {
        return Ok(value);
    }
    Ok(match to_real(&value) {
        Value::Real(number) => Value::Integer(truncate(round(number))),
        _ => Value::Error,
    })
}

pub(super) fn pow(call: &mut Call<'_, '_>) -> Evaluated {
    let values = call.values()?;
    if let (Value::Integer(base), Value::Integer(exponent @ 0..)) = (&values[0], &values[1]) {
        let power = (*base as f64).powf(*exponent as f64);
        // Rounded as the original does, which leaves powers below zero one too high.
        return Ok(Value::Integer(truncate(power + 0.5)));
    }
    Ok(match (to_real(&values[0]), to_real(&values[1])) {
        (Value::Real(base), Value::Real(exponent)) => Value::Real(base.powf(exponent)),
        _ => Value::Error,
    })
}

/// The next multiple, or the first of a list that is large enough.
pub(super) fn quantize(call: &mut Call<'_, '_>) -> Evaluated {
    let value = call.value(0)?;
    let mut base = call.value(1)?;
    let Value::Real(number) = to_real(&value) else {
        return Ok(Value::Error);
    };
    if let Value::List(list) = base {
        base = Value::Real(0.0);
        for item in list.items.iter() {
            base = call.run.item(&list, item, call.scope)?;
            match to_real(&base) {
                Value::Real(step) if step >= number => return Ok(base),
                Value::Real(_) => {}
                _ => return Ok(Value::Error),
            }
        }
    }
    Ok(match (&base, &value) {
        (Value::Integer(0), _) => value,
        (Value::Integer(step), Value::Integer(number)) => {
            let raised = number.wrapping_add(*step).wrapping_sub(1);
            Value::Integer(
                raised
                    .checked_div(*step)
                    .unwrap_or(i64::MAX)
                    .wrapping_mul(*step),
            )
        }
        (Value::Integer(step), _) => Value::Real((number / *step as f64).ceil() * *step as f64),
        _ => match to_real(&base) {
            Value::Real(step) if step.abs() <= 1e-8 => value,
            Value::Real(step) => Value::Real((number / step).ceil() * step),
            _ => Value::Error,
        },
    })
}

pub(super) fn random(call: &mut Call<'_, '_>) -> Evaluated {
    let below = if call.count() == 0 {
        Value::Real(1.0)
    } else {
        call.value(0)?
    };
    let number = call.run.context.surroundings().random().max(0);
    match below {
        Value::Integer(below) => {
            let below = Some(low_half(below)).filter(|below| *below > 0);
            let random = below.and_then(|below| number.checked_rem(below));
            Ok(Value::Integer(random.ok_or(EvalError::NoRandom)?.into()))
        }
        // As there is none below zero.
        Value::Real(below) if below <= 0.0 => Err(EvalError::NoRandom),
        Value::Real(below) => Ok(Value::Real(
            below * (f64::from(number) / f64::from(i32::MAX)),
        )),
        _ => Ok(Value::Error),
    }
}

#[cfg(test)]
mod tests {
    use crate::{Context, EvalError, Nowhere, parse_expression};

    /// Measured with the original: evaluation fails.
    #[test]
    fn there_is_no_random_number_below_what_is_not_above_zero() {
        let answer = |text: &str| {
            let expr = parse_expression(text).expect(text);
            Context::new(&Nowhere).eval(&expr)
        };
        for text in [
            "random(0)",
            "random(-5)",
            "random(-1)",
            "random(0.0)",
            "random(-1.5)",
        ] {
            assert!(matches!(answer(text), Err(EvalError::NoRandom)), "{text}");
        }
        for text in [
            "random(1)",
            "random(-4294967291)",
            "random(5.0)",
            "random()",
        ] {
            assert!(answer(text).is_ok(), "{text}");
        }
    }
}
