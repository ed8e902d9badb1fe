//! Expressions and ads of the new syntax.
//!
//! ```text
//! conditional  binary [? conditional : conditional]
//! binary       unary, operators by precedence, all from left to right
//! unary        - + ! ~ unary | default
//! default      postfix [?: default]
//! postfix      primary { [conditional] | .name }
//! primary      literal | name | name(arguments) | .name | (conditional) | {list} | [ad]
//! ```

use crate::ad::ClassAd;
use crate::error::ParseError;
use crate::expr::{BinaryOp, Expr, Literal, UnaryOp};
use crate::lexer::{Lexer, Syntax, Token};
use crate::limits::Limits;
use crate::text::Text;
use crate::time::{read_abs, read_rel};
use std::sync::Arc;

/// How much nesting a bracket is, since the original goes through that many functions for one.
const BRACKET: usize = 3;

/// Parses one expression.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
///
/// ```
/// let expr = classad::parse_expression("Memory > 64 && OpSys =?= \"LINUX\"")?;
/// assert_eq!(expr.to_string(), "Memory > 64 && OpSys is \"LINUX\"");
/// # Ok::<(), classad::ParseError>(())
/// ```
pub fn parse_expression(text: impl AsRef<[u8]>) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text.as_ref(), 0, Syntax::New, &Limits::default())?;
    let expr = parser.conditional()?;
    parser.expect_end()?;
    parser.lexer.expect_comment_ended()?;
    Ok(expr)
}

/// Parses one ad of the new syntax: `[ a = 1; b = a + 1 ]`.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
pub fn parse_ad(text: impl AsRef<[u8]>) -> Result<ClassAd, ParseError> {
    let mut parser = Parser::new(text.as_ref(), 0, Syntax::New, &Limits::default())?;
    let ad = parser.ad()?;
    parser.expect_end()?;
    Ok(ad)
}

/// Parses ads of the new syntax that follow each other.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
pub fn parse_ads(text: impl AsRef<[u8]>) -> Result<Vec<ClassAd>, ParseError> {
    let mut parser = Parser::new(text.as_ref(), 0, Syntax::New, &Limits::default())?;
    let mut ads = vec![];
    while parser.token != Token::End {
        ads.push(parser.ad()?);
    }
    Ok(ads)
}

/// Parses the expression that a text of the old syntax begins with; what is behind it does not matter.
pub(crate) fn parse_old_expression(text: &[u8]) -> Result<Expr, ParseError> {
    Parser::new(text, 0, Syntax::Old, &Limits::default())?.conditional()
}

/// Parses an expression of the old syntax that is all of a text, as a value of a configuration is.
///
/// # Errors
/// [`ParseError`] for what is none, and beyond the default [`Limits`].
pub fn parse_whole_old_expression(text: &[u8]) -> Result<Expr, ParseError> {
    let mut parser = Parser::new(text, 0, Syntax::Old, &Limits::default())?;
    let expr = parser.conditional()?;
    parser.expect_end()?;
    Ok(expr)
}

struct Parser<'t> {
    lexer: Lexer<'t>,
    /// The next token, and where it begins.
    token: Token,
    begin: usize,
    /// How deep the parser is.
    nesting: usize,
    /// How tall the tree is that was parsed last.
    height: usize,
    limits: Limits,
}

type Parsed = Result<Arc<Expr>, ParseError>;

impl<'t> Parser<'t> {
    fn new(text: &'t [u8], at: usize, syntax: Syntax, limits: &Limits) -> Result<Self, ParseError> {
        if text.len() > limits.text_bytes {
            return Err(ParseError::TooLong {
                len: text.len(),
                limit: limits.text_bytes,
            });
        }
        let mut lexer = Lexer::new(text, at, syntax);
        let (token, begin) = lexer.next()?;
        Ok(Self {
            lexer,
            token,
            begin,
            nesting: 0,
            height: 0,
            limits: *limits,
        })
    }

    fn advance(&mut self) -> Result<Token, ParseError> {
        let (token, begin) = self.lexer.next()?;
        self.begin = begin;
        Ok(std::mem::replace(&mut self.token, token))
    }

    fn is_at(&self, sign: &str) -> bool {
        matches!(self.token, Token::Sign(found) if found == sign)
    }

    fn takes(&mut self, sign: &str) -> Result<bool, ParseError> {
        let found = self.is_at(sign);
        if found {
            self.advance()?;
        }
        Ok(found)
    }

    fn unexpected(&self, expected: &'static str) -> ParseError {
        ParseError::Unexpected {
            offset: self.begin,
            found: self.token.describe(),
            expected,
        }
    }

    fn expect(&mut self, sign: &'static str) -> Result<(), ParseError> {
        if self.takes(sign)? {
            Ok(())
        } else {
            Err(self.unexpected(sign))
        }
    }

    fn expect_end(&self) -> Result<(), ParseError> {
        if self.token == Token::End {
            Ok(())
        } else {
            Err(self.unexpected("the end"))
        }
    }

    fn name(&mut self) -> Result<Text, ParseError> {
        match &self.token {
            Token::Name(_) => match self.advance()? {
                Token::Name(name) => Ok(name),
                _ => Err(self.unexpected("a name")),
            },
            _ => Err(self.unexpected("a name")),
        }
    }

    /// Parses something that is `weight` levels below.
    fn nested<T>(
        &mut self,
        weight: usize,
        parse: impl FnOnce(&mut Self) -> Result<T, ParseError>,
    ) -> Result<T, ParseError> {
        self.nesting += weight;
        if self.nesting > self.limits.nesting {
            return Err(ParseError::TooDeep {
                offset: self.lexer.offset(),
                limit: self.limits.nesting,
            });
        }
        let parsed = parse(self);
        self.nesting -= weight;
        parsed
    }

    fn conditional(&mut self) -> Result<Expr, ParseError> {
        self.nested(1, |parser| {
            let condition = parser.binary(0)?;
            if !parser.takes("?")? {
                return Ok(condition);
            }
            let mut height = parser.height;
            let then = parser.inner()?;
            height = height.max(parser.height);
            parser.expect(":")?;
            let otherwise = parser.inner()?;
            parser.grow(height)?;
            Ok(Expr::Conditional(Arc::new(condition), then, otherwise))
        })
    }

    fn inner(&mut self) -> Parsed {
        self.conditional().map(Arc::new)
    }

    /// Operators that bind at least as tightly as `least`.
    fn binary(&mut self, least: u8) -> Result<Expr, ParseError> {
        let mut left = self.unary()?;
        while let Token::Sign(sign) = self.token
            && let Some(op) = binary_op(sign)
            && op.precedence() >= least
        {
            let height = self.height;
            self.advance()?;
            let right = self.binary(op.precedence() + 1)?;
            self.grow(height)?;
            left = Expr::Binary(op, Arc::new(left), Arc::new(right));
        }
        Ok(left)
    }

    /// Notes that what was parsed last is part of a tree, as is something of a height.
    fn grow(&mut self, height: usize) -> Result<(), ParseError> {
        self.height = self.height.max(height) + 1;
        if self.height > self.limits.height {
            return Err(ParseError::TooDeep {
                offset: self.begin,
                limit: self.limits.height,
            });
        }
        Ok(())
    }

    fn unary(&mut self) -> Result<Expr, ParseError> {
        let op = match self.token {
            Token::Sign("-") => UnaryOp::Minus,
            Token::Sign("+") => UnaryOp::Plus,
            Token::Sign("!") => UnaryOp::Not,
            Token::Sign("~") => UnaryOp::BitNot,
            _ => return self.default(),
        };
        self.advance()?;
        let operand = self.nested(1, Self::unary)?;
        self.grow(0)?;
        Ok(Expr::Unary(op, Arc::new(operand)))
    }

    fn default(&mut self) -> Result<Expr, ParseError> {
        let expr = self.postfix()?;
        let height = self.height;
        if !self.takes("?:")? {
            return Ok(expr);
        }
        let otherwise = self.nested(1, Self::default)?;
        self.grow(height)?;
        Ok(Expr::Default(Arc::new(expr), Arc::new(otherwise)))
    }

    fn postfix(&mut self) -> Result<Expr, ParseError> {
        let mut expr = self.nested(BRACKET - 1, Self::primary)?;
        loop {
            let height = self.height;
            if self.takes("[")? {
                let index = self.nested(BRACKET - 1, Self::inner)?;
                self.expect("]")?;
                self.grow(height)?;
                expr = Expr::Subscript(Arc::new(expr), index);
            } else if self.takes(".")? {
                let name = self.name()?.into();
                self.grow(0)?;
                expr = Expr::Reference {
                    from: Some(Arc::new(expr)),
                    absolute: false,
                    name,
                };
            } else {
                return Ok(expr);
            }
        }
    }

    fn primary(&mut self) -> Result<Expr, ParseError> {
        let literal = match &self.token {
            Token::Name(_) => return self.name_or_call(),
            Token::Sign(".") => {
                self.advance()?;
                let name = self.name()?.into();
                self.height = 1;
                return Ok(Expr::Reference {
                    from: None,
                    absolute: true,
                    name,
                });
            }
            Token::Sign("(") => {
                self.advance()?;
                let inner = self.inner()?;
                self.grow(0)?;
                self.expect(")")?;
                return Ok(Expr::Parentheses(inner));
            }
            Token::Sign("{") => {
                self.advance()?;
                return Ok(Expr::List(self.items("}", ",")?.into()));
            }
            Token::Sign("[") => return Ok(Expr::Ad(Arc::new(self.ad()?))),
            Token::Integer(number) => Literal::Integer(*number),
            Token::Real(number) => Literal::Real(*number),
            Token::Boolean(truth) => Literal::Boolean(*truth),
            Token::String(text) => Literal::String(text.clone()),
            Token::Undefined => Literal::Undefined,
            Token::Error => Literal::Error,
            Token::End | Token::Sign(_) => return Err(self.unexpected("an expression")),
        };
        self.advance()?;
        self.height = 1;
        Ok(Expr::Literal(literal))
    }

    fn name_or_call(&mut self) -> Result<Expr, ParseError> {
        let begin = self.begin;
        let name = self.name()?;
        self.height = 1;
        if !self.takes("(")? {
            return Ok(Expr::attribute(name));
        }
        let arguments = self.items(")", ",;")?;
        // Times that are written out are values, not calls.
        if let [only] = arguments.as_slice()
            && let Expr::Literal(Literal::String(text)) = only.as_ref()
        {
            let malformed = ParseError::Malformed {
                offset: begin,
                what: "no time",
            };
            if name.is_like("absTime") {
                let time = read_abs(text.as_bytes()).ok_or(malformed)?;
                return Ok(Expr::Literal(Literal::AbsTime(time)));
            }
            if name.is_like("relTime") {
                let time = read_rel(text.as_bytes()).ok_or(malformed)?;
                return Ok(Expr::Literal(Literal::RelTime(time)));
            }
        }
        Ok(Expr::Call { name, arguments })
    }

    /// Expressions up to a bracket.
    fn items(&mut self, end: &'static str, separators: &str) -> Result<Vec<Arc<Expr>>, ParseError> {
        let mut items = vec![];
        let mut height = 0;
        self.height = 1;
        if self.takes(end)? {
            return Ok(items);
        }
        loop {
            items.push(self.inner()?);
            height = height.max(self.height);
            match self.token {
                Token::Sign(sign) if separators.contains(sign) => self.advance()?,
                _ => break,
            };
        }
        self.expect(end)?;
        self.grow(height)?;
        Ok(items)
    }

    fn ad(&mut self) -> Result<ClassAd, ParseError> {
        let mut ad = ClassAd::new();
        let mut height = 0;
        self.expect("[")?;
        let mut is_begin = true;
        loop {
            let mut semicolons = 0;
            while self.takes(";")? {
                semicolons += 1;
            }
            // As in the original, semicolons alone make no ad.
            let is_empty = std::mem::take(&mut is_begin) && semicolons > 0;
            if is_empty && self.is_at("]") {
                return Err(self.unexpected("an attribute"));
            }
            if self.takes("]")? {
                self.grow(height)?;
                return Ok(ad);
            }
            let name = self.name()?;
            self.expect("=")?;
            let expr = self.inner()?;
            height = height.max(self.height);
            ad.insert(name, expr);
            if !self.is_at(";") && !self.is_at("]") {
                return Err(self.unexpected("; or ]"));
            }
        }
    }
}

fn binary_op(sign: &str) -> Option<BinaryOp> {
    Some(match sign {
        "||" => BinaryOp::Or,
        "&&" => BinaryOp::And,
        "|" => BinaryOp::BitOr,
        "^" => BinaryOp::BitXor,
        "&" => BinaryOp::BitAnd,
        "==" => BinaryOp::Equal,
        "!=" => BinaryOp::NotEqual,
        "is" => BinaryOp::Is,
        "isnt" => BinaryOp::Isnt,
        "<" => BinaryOp::Less,
        "<=" => BinaryOp::LessOrEqual,
        ">" => BinaryOp::Greater,
        ">=" => BinaryOp::GreaterOrEqual,
        "<<" => BinaryOp::ShiftLeft,
        ">>" => BinaryOp::ShiftRight,
        ">>>" => BinaryOp::ShiftRightZero,
        "+" => BinaryOp::Add,
        "-" => BinaryOp::Subtract,
        "*" => BinaryOp::Multiply,
        "/" => BinaryOp::Divide,
        "%" => BinaryOp::Modulo,
        _ => return None,
    })
}
