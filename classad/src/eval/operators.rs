//! Operators on values.

use crate::expr::{BinaryOp, UnaryOp};
use crate::number::truncate_short;
use crate::text::order_ignoring_case;
use crate::value::{AbsTime, Value};
use std::cmp::Ordering;

/// An operator before its operand.
pub(crate) fn unary(op: UnaryOp, operand: Value) -> Value {
    match (op, operand) {
        (_, Value::Undefined) => Value::Undefined,
        (UnaryOp::Plus, value @ (Value::Integer(_) | Value::Real(_) | Value::RelTime(_))) => value,
        (UnaryOp::Minus, Value::Integer(number)) => Value::Integer(number.wrapping_neg()),
        (UnaryOp::Minus, Value::Real(number)) => Value::Real(-number),
        (UnaryOp::Minus, Value::RelTime(seconds)) => Value::RelTime(-seconds),
        (UnaryOp::Not, value) => value
            .truth()
            .map_or(Value::Error, |truth| Value::Boolean(!truth)),
        (UnaryOp::BitNot, Value::Integer(number)) => Value::Integer(!number),
        _ => Value::Error,
    }
}

/// An operator between two values.
pub(crate) fn binary(op: BinaryOp, left: Value, right: Value) -> Value {
    use BinaryOp as Op;
    match op {
        Op::Or | Op::And => return logical(op, &left, &right),
        Op::Is | Op::Isnt => return identical(op == Op::Is, &left, &right),
        _ => {}
    }
    if left.is_error() || right.is_error() {
        return Value::Error;
    }
    if left.is_undefined() || right.is_undefined() {
        return Value::Undefined;
    }
    match op {
        Op::Equal
        | Op::NotEqual
        | Op::Less
        | Op::LessOrEqual
        | Op::Greater
        | Op::GreaterOrEqual => {
            let (left, right) = promoted(left, right);
            compare(op, &left, &right)
        }
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide | Op::Modulo => {
            arithmetic(op, left, right)
        }
        _ => match (left, right) {
            (Value::Integer(left), Value::Integer(right)) => Value::Integer(bits(op, left, right)),
            _ => Value::Error,
        },
    }
}

/// `&&` and `||` of three values: what decides, decides; an ERROR before an UNDEFINED.
fn logical(op: BinaryOp, left: &Value, right: &Value) -> Value {
    let deciding = op == BinaryOp::Or;
    let state = |value: &Value| match value {
        Value::Undefined => Some(None),
        other => other.truth().map(Some),
    };
    match (state(left), state(right)) {
        (Some(Some(truth)), _) if truth == deciding => Value::Boolean(deciding),
        (None, _) | (_, None) => Value::Error,
        (Some(None), Some(Some(truth))) if truth == deciding => Value::Boolean(deciding),
        (Some(None), _) | (_, Some(None)) => Value::Undefined,
        (Some(Some(_)), Some(Some(truth))) => Value::Boolean(truth),
    }
}

/// `=?=` and `=!=`: same type and same value. Lists and ads are not compared; those that functions make are of a type of their own.
fn identical(wanted: bool, left: &Value, right: &Value) -> Value {
    let same = match (left, right) {
        (Value::Undefined, Value::Undefined) | (Value::Error, Value::Error) => true,
        (Value::Boolean(left), Value::Boolean(right)) => left == right,
        (Value::Integer(left), Value::Integer(right)) => left == right,
        (Value::Real(left), Value::Real(right)) | (Value::RelTime(left), Value::RelTime(right)) => {
            // NaN is neither identical to itself nor not.
            return Value::Boolean(if wanted { left == right } else { left != right });
        }
        (Value::String(left), Value::String(right)) => left == right,
        (Value::AbsTime(left), Value::AbsTime(right)) => left == right,
        (Value::List(left), Value::List(right)) if left.is_of_function == right.is_of_function => {
            return Value::Error;
        }
        (Value::Ad(_), Value::Ad(_)) => return Value::Error,
        _ => false,
    };
    Value::Boolean(same == wanted)
}

/// Two numbers as one type: booleans are 0 and 1, an integer beside a real is a real.
pub(crate) fn promoted(left: Value, right: Value) -> (Value, Value) {
    let is_number = |value: &Value| value.truth().is_some();
    if !is_number(&left) || !is_number(&right) {
        return (left, right);
    }
    let whole = |value| match value {
        Value::Boolean(truth) => Value::Integer(i64::from(truth)),
        other => other,
    };
    match (whole(left), whole(right)) {
        (Value::Integer(left), right @ Value::Real(_)) => (Value::Real(left as f64), right),
        (left @ Value::Real(_), Value::Integer(right)) => (left, Value::Real(right as f64)),
        both => both,
    }
}

fn compare(op: BinaryOp, left: &Value, right: &Value) -> Value {
    let order = match (left, right) {
        (Value::Integer(left), Value::Integer(right)) => Some(left.cmp(right)),
        (Value::Real(left), Value::Real(right)) | (Value::RelTime(left), Value::RelTime(right)) => {
            left.partial_cmp(right)
        }
        (Value::String(left), Value::String(right)) => {
            Some(order_ignoring_case(left.as_bytes(), right.as_bytes()))
        }
        (Value::AbsTime(left), Value::AbsTime(right)) => Some(left.seconds.cmp(&right.seconds)),
        _ => return Value::Error,
    };
    Value::Boolean(match op {
        BinaryOp::Equal => order == Some(Ordering::Equal),
        BinaryOp::NotEqual => order != Some(Ordering::Equal),
        BinaryOp::Less => order == Some(Ordering::Less),
        BinaryOp::LessOrEqual => matches!(order, Some(Ordering::Less | Ordering::Equal)),
        BinaryOp::Greater => order == Some(Ordering::Greater),
        _ => matches!(order, Some(Ordering::Greater | Ordering::Equal)),
    })
}

fn arithmetic(op: BinaryOp, left: Value, right: Value) -> Value {
    match promoted(left, right) {
        (Value::Integer(left), Value::Integer(right)) => integers(op, left, right),
        (Value::Real(left), Value::Real(right)) => {
            let result = match op {
                BinaryOp::Add => left + right,
                BinaryOp::Subtract => left - right,
                BinaryOp::Multiply => left * right,
                BinaryOp::Divide => left / right,
                _ => return Value::Error,
            };
            // The original takes infinity for an overflow, and its opposite for a number.
            if result == f64::INFINITY {
                Value::Error
            } else {
                Value::Real(result)
            }
        }
        (left, right) => times(op, &left, &right),
    }
}

fn integers(op: BinaryOp, left: i64, right: i64) -> Value {
    Value::Integer(match op {
        BinaryOp::Add => left.wrapping_add(right),
        BinaryOp::Subtract => left.wrapping_sub(right),
        BinaryOp::Multiply => left.wrapping_mul(right),
        _ if right == 0 => return Value::Error,
        // Off by one, as the original has it.
        BinaryOp::Divide => left.checked_div(right).unwrap_or(i64::MAX),
        _ => left.wrapping_rem(right),
    })
}

fn times(op: BinaryOp, left: &Value, right: &Value) -> Value {
    use BinaryOp as Op;
    let moved = |time: &AbsTime, by: i64| {
        Value::AbsTime(AbsTime {
            seconds: time.seconds.wrapping_add(by),
            offset_seconds: time.offset_seconds,
        })
    };
    let whole = |seconds: &f64| i64::from(truncate_short(*seconds));
    match (op, left, right) {
        (Op::Add, Value::AbsTime(time), Value::RelTime(span))
        | (Op::Add, Value::RelTime(span), Value::AbsTime(time)) => moved(time, whole(span)),
        (Op::Subtract, Value::AbsTime(time), Value::RelTime(span)) => moved(time, -whole(span)),
        (Op::Subtract, Value::AbsTime(left), Value::AbsTime(right)) => {
            Value::RelTime(left.seconds.wrapping_sub(right.seconds) as f64)
        }
        (Op::Add, Value::RelTime(left), Value::RelTime(right)) => Value::RelTime(left + right),
        (Op::Subtract, Value::RelTime(left), Value::RelTime(right)) => Value::RelTime(left - right),
        (Op::Multiply, Value::RelTime(span), Value::Integer(by))
        | (Op::Multiply, Value::Integer(by), Value::RelTime(span)) => {
            Value::RelTime(span * *by as f64)
        }
        (Op::Multiply, Value::RelTime(span), Value::Real(by))
        | (Op::Multiply, Value::Real(by), Value::RelTime(span)) => Value::RelTime(span * by),
        (Op::Divide, Value::RelTime(span), Value::Integer(by)) => Value::RelTime(span / *by as f64),
        (Op::Divide, Value::RelTime(span), Value::Real(by)) => Value::RelTime(span / by),
        _ => Value::Error,
    }
}

fn bits(op: BinaryOp, left: i64, right: i64) -> i64 {
    // As x86-64 shifts: by the low six bits.
    let by = right as u32;
    match op {
        BinaryOp::BitOr => left | right,
        BinaryOp::BitXor => left ^ right,
        BinaryOp::BitAnd => left & right,
        BinaryOp::ShiftLeft => left.wrapping_shl(by),
        BinaryOp::ShiftRight if left < 0 => left >> right.clamp(0, 63),
        BinaryOp::ShiftRightZero if left < 0 => {
            // One first, which brings a zero in, then the others.
            let first = ((left as u64) >> 1) as i64;
            first.wrapping_shr(right.wrapping_sub(1) as u32)
        }
        _ => left.wrapping_shr(by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shifts_are_the_processors() {
        assert_eq!(bits(BinaryOp::ShiftLeft, 1, 65), 2);
        assert_eq!(bits(BinaryOp::ShiftLeft, 1, -1), i64::MIN);
        assert_eq!(bits(BinaryOp::ShiftRight, -1, 100), -1);
        assert_eq!(bits(BinaryOp::ShiftRight, -8, -1), -8);
        assert_eq!(bits(BinaryOp::ShiftRight, 8, -1), 0);
        assert_eq!(
            bits(BinaryOp::ShiftRightZero, -8, 1),
            9_223_372_036_854_775_804
        );
        assert_eq!(bits(BinaryOp::ShiftRightZero, -8, 0), 0);
        assert_eq!(
            bits(BinaryOp::ShiftRightZero, -8, 65),
            9_223_372_036_854_775_804
        );
    }

    #[test]
    fn lists_of_functions_are_of_a_type_of_their_own() {
        use crate::{Context, Nowhere, parse_ad, parse_expression};
        let ad = parse_ad("[ l = {[ b = 1 ]}; k = { 1 } ]").unwrap_or_default();
        let context = Context::new(&Nowhere).with_my(ad);
        for (text, expected) in [
            ("{\"a\"} is split(\"a\")", "false"),
            ("split(\"a\") isnt k", "true"),
            ("l.b is split(\"a\")", "false"),
            ("l.b is k", "error"),
            ("split(\"a\") is split(\"a\")", "error"),
            ("k == split(\"a\")", "error"),
        ] {
            let expr = parse_expression(text).ok();
            let value = expr.and_then(|expr| context.eval(&expr).ok());
            let value = value.map(|value| value.to_string());
            assert_eq!(value.as_deref(), Some(expected), "{text}");
        }
    }
}
