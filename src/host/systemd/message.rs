//! D-Bus, as much of it as a call takes: its values and messages as they go
//! over the wire. "Message Protocol" in the specification has the rules.

use std::io::{self, Read};

/// No answer that is expected here is longer.
const LONGEST: usize = 1 << 20;

/// Values one after another, each at a multiple of its own alignment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Body(Vec<u8>);

impl Body {
    /// A 32-bit number.
    pub fn number(&mut self, number: u32) {
        self.align(4);
        self.0.extend(number.to_le_bytes());
    }

    /// A string, or the path of an object.
    pub fn text(&mut self, text: &str) {
        self.number(text.len() as u32);
        self.0.extend(text.as_bytes());
        self.0.push(0);
    }

    /// Bytes.
    pub fn bytes(&mut self, bytes: &[u8]) {
        self.0.extend(bytes);
    }

    /// An array; what it holds is aligned so.
    pub fn array(&mut self, alignment: usize, items: impl FnOnce(&mut Body)) {
        self.number(0);
        let length = self.0.len() - 4;
        // The padding to the first item is there without one too, and does not count.
        self.align(alignment);
        let start = self.0.len();
        items(self);
        let bytes = (self.0.len() - start) as u32;
        self.0[length..length + 4].copy_from_slice(&bytes.to_le_bytes());
    }

    /// A name and a value of any type, as an item of an array.
    pub fn property(&mut self, name: &str, signature: &str, value: impl FnOnce(&mut Body)) {
        self.align(8);
        self.text(name);
        self.variant(signature, value);
    }

    fn variant(&mut self, signature: &str, value: impl FnOnce(&mut Body)) {
        self.signature(signature);
        value(self);
    }

    fn signature(&mut self, signature: &str) {
        self.0.push(signature.len() as u8);
        self.0.extend(signature.as_bytes());
        self.0.push(0);
    }

    fn align(&mut self, alignment: usize) {
        self.0.resize(self.0.len().next_multiple_of(alignment), 0);
    }
}

/// A call of a method.
#[derive(Clone, Debug)]
pub struct Call {
    /// Who is called.
    pub to: &'static str,
    /// Which of its objects.
    pub path: &'static str,
    /// Where the method belongs.
    pub interface: &'static str,
    /// The method.
    pub member: &'static str,
    /// The types of the arguments.
    pub signature: &'static str,
    /// The arguments.
    pub body: Body,
}

impl Call {
    /// What a bus wants to hear first.
    pub const HELLO: Call = Call {
        to: "org.freedesktop.DBus",
        path: "/org/freedesktop/DBus",
        interface: "org.freedesktop.DBus",
        member: "Hello",
        signature: "",
        body: Body(Vec::new()),
    };

    /// The message.
    pub fn message(&self, serial: u32) -> Vec<u8> {
        // Little endian, a call, no flags, version 1.
        let mut message = Body(vec![b'l', 1, 0, 1]);
        message.number(self.body.0.len() as u32);
        message.number(serial);
        message.array(8, |fields| {
            let texts = [(1, "o", self.path), (2, "s", self.interface), (3, "s", self.member), (6, "s", self.to)];
            for (field, signature, text) in texts {
                fields.align(8);
                fields.0.push(field);
                fields.variant(signature, |value| value.text(text));
            }
            if !self.signature.is_empty() {
                fields.align(8);
                fields.0.push(8);
                fields.variant("g", |value| value.signature(self.signature));
            }
        });
        message.align(8);
        message.0.extend(&self.body.0);
        message.0
    }
}

/// A message that came.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Reply {
    /// The call that it answers.
    pub to: Option<u32>,
    /// The name of the error that it is.
    pub error: Option<String>,
    /// Its first argument, if that is a text.
    pub text: Option<String>,
}

impl Reply {
    /// Reads one.
    ///
    /// # Errors
    /// It ends early, or is none.
    pub fn read(from: &mut impl Read) -> io::Result<Reply> {
        let mut fixed = [0; 16];
        from.read_exact(&mut fixed)?;
        let number = |at: usize| u32::from_le_bytes([fixed[at], fixed[at + 1], fixed[at + 2], fixed[at + 3]]) as usize;
        let (body, fields) = (number(4), number(12));
        if fixed[0] != b'l' || body > LONGEST || fields > LONGEST {
            return Err(io::Error::other("systemd's answer cannot be understood"));
        }
        let mut rest = vec![0; fields.next_multiple_of(8) + body];
        from.read_exact(&mut rest)?;
        let (head, body) = rest.split_at(fields.next_multiple_of(8));
        let mut reply = Reply::default();
        let mut signature = None;
        let mut head = Reader { bytes: &head[..fields], at: 0 };
        while let Some((field, value)) = head.field() {
            match (field, value) {
                (4, Value::Text(name)) => reply.error = Some(name),
                (5, Value::Number(serial)) => reply.to = Some(serial),
                (8, Value::Text(types)) => signature = Some(types),
                _ => {}
            }
        }
        if signature.is_some_and(|types| types.starts_with('s')) {
            reply.text = Reader { bytes: body, at: 0 }.text();
        }
        Ok(reply)
    }
}

enum Value {
    Text(String),
    Number(u32),
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn field(&mut self) -> Option<(u8, Value)> {
        self.at = self.at.next_multiple_of(8);
        let field = self.byte()?;
        let signature = self.signature()?;
        let value = match signature.as_str() {
            "s" | "o" => Value::Text(self.text()?),
            "g" => Value::Text(self.signature()?),
            "u" => Value::Number(self.number()?),
            _ => return None,
        };
        Some((field, value))
    }

    fn byte(&mut self) -> Option<u8> {
        self.at += 1;
        self.bytes.get(self.at - 1).copied()
    }

    fn number(&mut self) -> Option<u32> {
        self.at = self.at.next_multiple_of(4) + 4;
        let bytes = self.bytes.get(self.at - 4..self.at)?;
        Some(u32::from_le_bytes(bytes.try_into().ok()?))
    }

    fn text(&mut self) -> Option<String> {
        let length = self.number()? as usize;
        self.letters(length)
    }

    fn signature(&mut self) -> Option<String> {
        let length = self.byte()? as usize;
        self.letters(length)
    }

    /// So many, and the NUL byte behind them.
    fn letters(&mut self, length: usize) -> Option<String> {
        let letters = self.bytes.get(self.at..self.at.checked_add(length)?)?;
        self.at += length + 1;
        Some(String::from_utf8_lossy(letters).into_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_laid_out_as_the_specification_says() {
        let mut body = Body::default();
        body.text("a.scope");
        body.array(8, |list| list.property("PIDs", "au", |value| value.array(4, |pids| pids.number(7))));
        body.array(8, |_| {});
        let wanted: Vec<u8> = [
            &[7, 0, 0, 0][..],
            b"a.scope\0",
            // The array's length, at 12; its first item is at 16 and ends at 40.
            &[24, 0, 0, 0],
            &[4, 0, 0, 0],
            b"PIDs\0",
            b"\x02au\0",
            &[0, 0, 0],
            &[4, 0, 0, 0],
            &[7, 0, 0, 0],
            // Padded for an item of 8 bytes that does not come.
            &[0, 0, 0, 0],
            &[0, 0, 0, 0],
        ]
        .concat();
        assert_eq!(body.0, wanted);
    }

    #[test]
    fn a_reply_is_told_from_a_signal_and_an_error_has_its_words() {
        let call = Call { member: "Hello", ..Call::HELLO };
        let signal = Reply::read(&mut call.message(1).as_slice()).unwrap();
        assert_eq!(signal, Reply::default());
        let mut error = Body(vec![b'l', 3, 1, 1]);
        let mut words = Body::default();
        words.text("Unit a.scope already exists.");
        error.number(words.0.len() as u32);
        error.number(9);
        error.array(8, |fields| {
            for (field, signature) in [(4, "s"), (5, "u"), (8, "g")] {
                fields.align(8);
                fields.0.push(field);
                fields.variant(signature, |value| match signature {
                    "s" => value.text("org.example.Exists"),
                    "u" => value.number(2),
                    _ => value.signature("s"),
                });
            }
        });
        error.align(8);
        error.0.extend(words.0);
        let reply = Reply::read(&mut error.0.as_slice()).unwrap();
        assert_eq!(reply.to, Some(2));
        assert_eq!(reply.error.as_deref(), Some("org.example.Exists"));
        assert_eq!(reply.text.as_deref(), Some("Unit a.scope already exists."));
        for length in 0..error.0.len() {
            assert!(Reply::read(&mut &error.0[..length]).is_err());
        }
    }

    #[test]
    fn nonsense_is_refused_and_crashes_nothing() {
        assert!(Reply::read(&mut [0xff; 64].as_slice()).is_err());
        // Lengths within the message that lead out of it.
        let mut message = vec![b'l', 2, 0, 1, 0, 0, 0, 0, 1, 0, 0, 0, 8, 0, 0, 0];
        message.extend([5, 1, b's', 0, 0xff, 0xff, 0xff, 0xff]);
        assert_eq!(Reply::read(&mut message.as_slice()).unwrap(), Reply::default());
    }
}
