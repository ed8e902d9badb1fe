//! What holds for every text and every ad.
#![allow(clippy::expect_used, reason = "a test")]

use classad::{
    BinaryOp, ClassAd, Context, EvalError, Expr, Limits, Literal, Match, Nowhere, ParseError,
    UnaryOp, parse_ad, parse_ads, parse_any_ads, parse_expression, parse_json_ad, parse_old_ad,
    parse_old_ads,
};
use proptest::collection::vec;
use proptest::prelude::*;
use std::sync::Arc;

fn literal() -> impl Strategy<Value = Expr> {
    prop_oneof![
        Just(Literal::Undefined),
        Just(Literal::Error),
        any::<bool>().prop_map(Literal::Boolean),
        any::<i64>().prop_map(Literal::Integer),
        // Reals are printed with sixteen digits: not each of them comes back.
        any::<i32>().prop_map(|number| Literal::Real(f64::from(number) / 8.0)),
        "[ -\u{24f}]{0,8}".prop_map(|text| Literal::String(text.into())),
    ]
    .prop_map(Expr::Literal)
}

fn name() -> impl Strategy<Value = String> {
    prop_oneof![
        "[A-Za-z_][A-Za-z0-9_]{0,6}",
        Just("parent".to_owned()),
        "[a-z' .\\\\]{1,5}",
    ]
}

fn binary_op() -> impl Strategy<Value = BinaryOp> {
    use BinaryOp as Op;
    prop::sample::select(vec![
        Op::Or,
        Op::And,
        Op::BitOr,
        Op::BitXor,
        Op::BitAnd,
        Op::Equal,
        Op::NotEqual,
        Op::Is,
        Op::Isnt,
        Op::Less,
        Op::LessOrEqual,
        Op::Greater,
        Op::GreaterOrEqual,
        Op::ShiftLeft,
        Op::ShiftRight,
        Op::ShiftRightZero,
        Op::Add,
        Op::Subtract,
        Op::Multiply,
        Op::Divide,
        Op::Modulo,
    ])
}

/// Expressions with parentheses where they are needed.
fn expression() -> impl Strategy<Value = Expr> {
    let leaf = prop_oneof![literal(), name().prop_map(Expr::attribute)];
    leaf.prop_recursive(4, 40, 4, |inner| {
        let closed = inner.prop_map(|expr| Arc::new(Expr::Parentheses(Arc::new(expr))));
        prop_oneof![
            (binary_op(), closed.clone(), closed.clone())
                .prop_map(|(op, a, b)| Expr::Binary(op, a, b)),
            (
                prop::sample::select(vec![
                    UnaryOp::Minus,
                    UnaryOp::Plus,
                    UnaryOp::Not,
                    UnaryOp::BitNot
                ]),
                closed.clone()
            )
                .prop_map(|(op, a)| Expr::Unary(op, a)),
            (closed.clone(), closed.clone(), closed.clone())
                .prop_map(|(a, b, c)| Expr::Conditional(a, b, c)),
            (closed.clone(), closed.clone()).prop_map(|(a, b)| Expr::Default(a, b)),
            (closed.clone(), closed.clone()).prop_map(|(a, b)| Expr::Subscript(a, b)),
            (closed.clone(), name()).prop_map(|(from, name)| Expr::Reference {
                from: Some(from),
                absolute: false,
                name: name.into()
            }),
            (name(), vec(closed.clone(), 0..4)).prop_map(|(name, arguments)| Expr::Call {
                name: name.into(),
                arguments
            }),
            vec(closed.clone(), 0..4).prop_map(|items| Expr::List(items.into())),
            vec((name(), closed), 0..4)
                .prop_map(|attributes| Expr::Ad(Arc::new(attributes.into_iter().collect()))),
        ]
    })
}

fn ad() -> impl Strategy<Value = ClassAd> {
    vec((name(), expression()), 0..6).prop_map(|attributes| attributes.into_iter().collect())
}

proptest! {
    #[test]
    fn what_is_printed_reads_back(expr in expression()) {
        let text = expr.to_string();
        prop_assert_eq!(parse_expression(&text), Ok(expr), "{}", text);
    }

    #[test]
    fn ads_read_back_from_the_new_syntax_and_from_json(ad in ad()) {
        prop_assert_eq!(parse_ad(ad.to_string()), Ok(ad.clone()));
        let json = ad.to_json();
        prop_assert_eq!(parse_json_ad(json.as_bytes()), Ok(ad.clone()), "{}", json);
        let json: Result<serde_json::Value, _> = serde_json::from_slice(json.as_bytes());
        prop_assert!(json.is_ok());
    }

    #[test]
    fn ads_read_back_from_the_old_syntax(attributes in vec(("[A-Za-z_][A-Za-z0-9_]{0,6}", -9_i64..9, "[ -\\[\\]-~]{0,9}"), 0..6)) {
        let mut ad = ClassAd::new();
        for (name, number, text) in attributes {
            ad.insert(format!("n{name}"), Expr::from(number));
            ad.insert(format!("s{name}"), Expr::from(text));
        }
        prop_assert_eq!(parse_old_ad(ad.to_old().as_bytes()), Ok(ad));
    }

    #[test]
    fn any_bytes_are_parsed_or_refused(bytes in vec(any::<u8>(), 0..200)) {
        let _ = (parse_expression(&bytes), parse_ads(&bytes), parse_old_ads(&bytes), parse_any_ads(&bytes));
        let _ = parse_json_ad([b"{", bytes.as_slice()].concat());
    }

    #[test]
    fn any_words_are_evaluated_or_refused(
        words in vec(prop::sample::select(vec![
            "a", "b", "1", "-", "0.5", "\"x\"", "(", ")", "[", "]", "{", "}", "=", ";", ",", ".", "?", ":", "?:", "+", "*",
            "/", "%", "<<", ">>>", "&&", "||", "is", "strcat(", "substr(", "regexps(", "eval(", "formatTime(", "split(",
            "absTime(", "relTime(", "interval(", "parent.", "my.", "9223372036854775807", "1e300", "undefined", "error",
        ]), 0..24),
    ) {
        let text = words.concat();
        if let Ok(expr) = parse_expression(&text) {
            let ad = ClassAd::from_iter([("a", expr.clone()), ("b", Expr::attribute("a"))]);
            let context = Context::new(&Nowhere).with_my(ad);
            let _ = (context.eval(&expr), context.flatten(&expr));
            let _ = (context.external_references(&expr), context.internal_references(&expr));
            prop_assert_eq!(parse_expression(expr.to_string()).map(|expr| expr.to_string()).is_ok(), true);
        }
    }
}

/// Found by fuzzing: names that could not be read back.
#[test]
fn no_name_and_no_string_has_a_zero_byte() {
    assert!(parse_old_ads(b"F\x01\0F=F").is_err());
    assert!(parse_old_ads(b"F=\"\0\"").is_err());
    assert!(parse_json_ad(b"{\"a\": \"\\\0\"}").is_err());
    assert!(parse_json_ad("{\"a\": \"\\u0000\"}").is_err());
    assert!(parse_expression("\"\\0\"").is_err());
}

#[test]
fn nesting_has_a_limit() {
    for (open, close) in [
        ("(", ")"),
        ("{", "}"),
        ("[a=", "]"),
        ("f(", ")"),
        ("-", ""),
        ("1?", ":1"),
        ("x?:", ""),
    ] {
        let text = format!("{}1{}", open.repeat(100_000), close.repeat(100_000));
        assert!(
            matches!(parse_expression(text), Err(ParseError::TooDeep { .. })),
            "{open}"
        );
    }
    for (begin, part) in [("1", "+1"), ("x", ".x"), ("x", "[0]")] {
        let text = format!("{begin}{}", part.repeat(100_000));
        assert!(
            matches!(parse_expression(text), Err(ParseError::TooDeep { .. })),
            "{part}"
        );
    }
    let json = format!("{}{}", "{\"a\":[".repeat(50_000), "]}".repeat(50_000));
    assert!(matches!(
        parse_json_ad(json),
        Err(ParseError::TooDeep { .. })
    ));
}

#[test]
fn evaluation_has_limits() {
    let eval = |text: &str| {
        let context = Context::new(&Nowhere).with_my(parse_ad(text).expect("an ad"));
        context.eval(&Expr::attribute("a"))
    };
    let chain: String = (0..500).map(|at| format!("x{at} = x{};", at + 1)).collect();
    assert!(matches!(
        eval(&format!("[a = x0; {chain}]")),
        Err(EvalError::TooDeep { .. })
    ));
    let doubled: String = (0..60)
        .map(|at| format!("x{at} = x{0} + x{0};", at + 1))
        .collect();
    assert!(matches!(
        eval(&format!("[a = x0; {doubled} x60 = 1]")),
        Err(EvalError::TooLong { .. })
    ));
    assert!(matches!(
        eval("[a = l.b; l = { l }]"),
        Err(EvalError::TooDeep { .. })
    ));
    // However deep it goes, the stack of a thread is enough: else this ends the test.
    for link in [
        "ifThenElse(true, NEXT, 1)",
        "{ [ b = NEXT ] }.b[0]",
        "strcat(eval(\"NEXT\"), { NEXT }[0])",
        "evalInEachContext(NEXT + 1, { [] })[0]",
    ] {
        let bind =
            |at: usize| format!("x{at} = {};", link.replace("NEXT", &format!("x{}", at + 1)));
        let chain: String = (0..500).map(bind).collect();
        let value = eval(&format!("[a = x0; {chain} x500 = 7]"));
        assert!(value.is_err() || value.is_ok_and(|value| value.to_string() != "7"));
    }
    let long: String = (0..40)
        .map(|at| format!("x{at} = strcat(x{0}, x{0});", at + 1))
        .collect();
    let limits = Limits {
        steps: u64::MAX,
        ..Limits::default()
    };
    let ad = parse_ad(format!("[a = x20; {long} x40 = \"0123456789\"]")).expect("an ad");
    let context = Context::new(&Nowhere).with_my(ad).with_limits(limits);
    assert!(matches!(
        context.eval(&Expr::attribute("a")),
        Err(EvalError::TooLarge { .. })
    ));
}

#[test]
fn who_refers_to_itself_is_undefined() {
    let ad = parse_ad("[a = b; b = a; c = c + 1; d = isUndefined(d)]").expect("an ad");
    let context = Context::new(&Nowhere).with_my(ad);
    let value = |name| {
        context
            .eval(&Expr::attribute(name))
            .expect("a value")
            .to_string()
    };
    assert_eq!(
        (value("a"), value("c"), value("d")),
        ("undefined".into(), "undefined".into(), "true".into())
    );
}

#[test]
fn a_list_of_separators_is_part_of_none_and_an_empty_one_of_each() {
    let context = Context::new(&Nowhere);
    // Each as the original says.
    for (text, expected) in [
        (r#"stringListSubsetMatch("", "x")"#, "true"),
        (r#"stringListSubsetMatch(undefined, "x")"#, "true"),
        (r#"stringListSubsetMatch(", ", "x")"#, "false"),
        (r#"stringListISubsetMatch("abc", "abc", "abc")"#, "false"),
        (r#"stringListISubsetMatch(",A", "a")"#, "true"),
    ] {
        let expr = parse_expression(text).expect("parses");
        let value = context.eval(&expr).expect("evaluates");
        assert_eq!(value.to_string(), expected, "{text}");
    }
}

#[test]
fn the_ads_of_the_manual_match() {
    let job = parse_old_ad(
        "MyType = \"Job\"\nOwner = \"tannenba\"\nDepartment = \"CompSci\"\nDiskUsage = 465\n\
         Requirements = ((Arch == \"INTEL\" && OpSys == \"LINUX\") && Disk > DiskUsage)\n\
         Rank = (Memory * 10000) + KFlops\n",
    );
    let machine = parse_old_ad(
        "MyType = \"Machine\"\nArch = \"INTEL\"\nOpSys = \"Linux\"\nDisk = 3076076\nMemory = 511\nKFlops = 145811\n\
         LoadAvg = 0.22\nKeyboardIdle = 1000\nDepartment = \"CompSci\"\nRequirements = Start\n\
         Start = (LoadAvg <= 0.300000) && (KeyboardIdle > (15 * 60))\n\
         Rank = TARGET.Department == MY.Department\n",
    );
    let both =
        Match::of(job.expect("a job"), machine.expect("a machine"), &Nowhere).expect("values");
    assert!(both.is_symmetric());
    assert_eq!((both.left_rank, both.right_rank), (5_255_811.0, 1.0));
}
