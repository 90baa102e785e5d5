//! Messages of a batch, sorted into one stretch of bytes for each name that their topic's rules find.
//!
//! Which table a name is, Python decides (`ingest/route`), once for each name; here it is a number.

use crate::field::field_text;
use std::borrow::Cow;
use std::collections::HashMap;
use std::ops::Range;

/// In place of a name's number: messages that no table takes.
pub const ODD: i64 = -1;
/// The same of messages whose values have to be looked into further than is done here.
pub const UNDECIDED: i64 = -2;
/// The size of a row without a value.
const NO_VALUE: u32 = u32::MAX;
/// Longer names are no tenant's and no stream's.
const NAME_BYTES_MAX: usize = 1_024;
/// So many names, and bytes of them, are known at most when a batch begins.
const NAMES_MAX: usize = 65_536;
const NAMES_BYTES_MAX: usize = 16 << 20;
/// So many bytes are kept for the next batch.
const KEPT_BYTES_MAX: usize = 32 << 20;

/// A header's name and value.
pub type Header<'a> = (&'a [u8], Option<&'a [u8]>);

/// Where a rule looks for a name.
pub enum Step {
    /// Into the last header called so.
    Header(Box<[u8]>),
    /// Into the key.
    Key,
    /// Nowhere: it always has the same.
    Constant,
    /// Into the value: a field's name, and keys with which `field_text` leaves a record.
    Field(Box<[u8]>, Vec<Box<[u8]>>),
    /// Where only Python looks.
    Elsewhere,
}

/// A topic's partition: its number in Python, and the rules for tenant and stream. Names that rules of equal
/// `plan` find are the same. `takes_empty`: whether messages without a value say something.
pub struct Source {
    pub number: i32,
    pub plan: u32,
    pub takes_empty: bool,
    pub rules: [Vec<Step>; 2],
}

/// A message. `envelope`: where its key and headers lie, as `append_envelope` spells them.
pub struct Message<'a> {
    pub source: i32,
    pub error: i32,
    pub offset: i64,
    pub timestamp_ms: i64,
    pub value: Option<&'a [u8]>,
    pub envelope: Range<usize>,
    pub name: i64,
}

/// What is told of a message; `ingest/model/raw_rows.py` has the same. `envelope`: the bytes of its envelope,
/// 0 where it is that of the message before.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Row {
    pub offset: i64,
    pub timestamp_ms: i64,
    pub size: u32,
    pub envelope: u32,
    pub source: i32,
    pub error: i32,
}

/// Messages of one run and name, in order: where their rows, values and envelopes begin and end. A run is what
/// came of one source together; those that Python has to look into are runs of their own.
#[repr(C)]
#[derive(Clone, Copy, Default, PartialEq, Debug)]
pub struct Group {
    pub name: i64,
    pub run: i64,
    pub source: i64,
    pub first_offset: i64,
    pub last_offset: i64,
    pub rows: [i64; 2],
    pub values: [i64; 2],
    pub envelopes: [i64; 2],
}

/// The names met so far, and their numbers.
#[derive(Default)]
pub struct Names {
    numbers: HashMap<Box<[u8]>, i64>,
    bytes: usize,
    name: Vec<u8>,
    /// Rises when names get other numbers.
    pub generation: u64,
}

impl Names {
    /// Begins a batch, within which numbers stay what they are.
    pub fn begin(&mut self) {
        if self.numbers.len() > NAMES_MAX || self.bytes > NAMES_BYTES_MAX {
            (self.numbers, self.bytes) = (HashMap::new(), 0);
            self.generation += 1;
        }
    }

    /// The number of what the source's rules find, ODD or UNDECIDED.
    pub fn find(&mut self, source: &Source, key: Option<&[u8]>, value: &[u8], headers: &[Header]) -> i64 {
        self.name.clear();
        self.name.extend_from_slice(&source.plan.to_le_bytes());
        for steps in &source.rules {
            match steps.iter().find_map(|step| look(step, key, value, headers)) {
                None => self.name.extend_from_slice(&u32::MAX.to_le_bytes()),
                Some(None) => return UNDECIDED,
                Some(Some(text)) if text.len() > NAME_BYTES_MAX => return ODD,
                Some(Some(text)) => {
                    self.name.extend_from_slice(&(text.len() as u32).to_le_bytes());
                    self.name.extend_from_slice(&text);
                }
            }
        }
        if let Some(&number) = self.numbers.get(&self.name[..]) {
            return number;
        }
        let number = self.numbers.len() as i64;
        self.bytes += self.name.len();
        self.numbers.insert(self.name[..].into(), number);
        number
    }
}

/// What a rule finds: None where the next one is asked, Some(None) where Python has to look.
fn look<'a>(
    step: &Step,
    key: Option<&'a [u8]>,
    value: &[u8],
    headers: &[Header<'a>],
) -> Option<Option<Cow<'a, [u8]>>> {
    let found = match step {
        Step::Header(wanted) => headers.iter().rfind(|(name, _)| *name == &wanted[..])?.1?,
        Step::Key => key?,
        Step::Constant => return Some(Some(Cow::Borrowed(b""))),
        Step::Elsewhere => return Some(None),
        Step::Field(field, odd) => match field_text(value, field, odd) {
            None => return Some(None),
            Some(text) if text.is_empty() => return None,
            Some(text) => return Some(Some(Cow::Owned(text))),
        },
    };
    if found.is_empty() { None } else { Some(Some(Cow::Borrowed(found))) }
}

/// Appends key and headers: of each text its length (four bytes, the lowest first; -1: there is none) and its
/// bytes, the number of headers before them. False where a header's name is no UTF-8: the number is -1 then.
pub fn append_envelope(out: &mut Vec<u8>, key: Option<&[u8]>, headers: &[Header]) -> bool {
    append_text(out, key);
    if headers.iter().any(|(name, _)| std::str::from_utf8(name).is_err()) {
        out.extend_from_slice(&(-1_i32).to_le_bytes());
        return false;
    }
    out.extend_from_slice(&(headers.len() as u32).to_le_bytes());
    for (name, value) in headers {
        append_text(out, Some(name));
        append_text(out, *value);
    }
    true
}

fn append_text(out: &mut Vec<u8>, text: Option<&[u8]>) {
    out.extend_from_slice(&text.map_or(-1, |text| text.len() as i32).to_le_bytes());
    out.extend_from_slice(text.unwrap_or_default());
}

/// A batch, sorted. The vectors may be longer than the groups say.
#[derive(Default)]
pub struct Grouping {
    pub groups: Vec<Group>,
    pub rows: Vec<Row>,
    pub values: Vec<u8>,
    pub envelopes: Vec<u8>,
    /// By name (and two): the run in which it was met last, and its group there.
    met: Vec<(i64, usize)>,
    run: i64,
}

impl Grouping {
    /// Sorts messages, whose envelopes lie in `envelopes`. Groups come run by run.
    pub fn fill(&mut self, messages: &[Message], envelopes: &[u8]) {
        self.groups.clear();
        let mut places = Vec::with_capacity(messages.len()); // of each message: its group, and whether its
        let mut last: Vec<&Range<usize>> = Vec::new(); // envelope is that of the one before in it
        let is_one_run = |one: &Message, next: &Message| {
            one.source == next.source && (one.name == UNDECIDED) == (next.name == UNDECIDED)
        };
        for run in messages.chunk_by(is_one_run) {
            self.run += 1;
            for message in run {
                let at = self.group_of(message);
                let group = &mut self.groups[at];
                let is_repeated = last.get(at).is_some_and(|before| {
                    envelopes[(*before).clone()] == envelopes[message.envelope.clone()]
                });
                if at == last.len() {
                    last.push(&message.envelope);
                }
                last[at] = &message.envelope;
                group.last_offset = message.offset;
                group.rows[1] += 1;
                group.values[1] += message.value.map_or(0, <[u8]>::len) as i64;
                group.envelopes[1] += if is_repeated { 0 } else { message.envelope.len() as i64 };
                places.push((at, is_repeated));
            }
        }
        self.make_room();
        for (message, (at, is_repeated)) in messages.iter().zip(places) {
            self.place(at, message, if is_repeated { &[] } else { &envelopes[message.envelope.clone()] });
        }
    }

    fn group_of(&mut self, message: &Message) -> usize {
        let name = message.name;
        let index = (name + 2) as usize;
        if index >= self.met.len() {
            self.met.resize(index + 1, (0, 0));
        }
        if self.met[index].0 != self.run {
            self.met[index] = (self.run, self.groups.len());
            let (run, source, first_offset) = (self.run, message.source.into(), message.offset);
            self.groups.push(Group { name, run, source, first_offset, ..Group::default() });
        }
        self.met[index].1
    }

    /// From how much each group has to where that begins; its end is what `place` moves.
    fn make_room(&mut self) {
        let (mut rows, mut values, mut envelopes) = (0, 0, 0);
        for group in &mut self.groups {
            for (bounds, end) in [
                (&mut group.rows, &mut rows),
                (&mut group.values, &mut values),
                (&mut group.envelopes, &mut envelopes),
            ] {
                let size = bounds[1];
                *bounds = [*end, *end];
                *end += size;
            }
        }
        if self.values.len() + self.envelopes.len() > KEPT_BYTES_MAX {
            (self.values, self.envelopes) = (Vec::new(), Vec::new());
        }
        grow(&mut self.rows, rows);
        grow(&mut self.values, values);
        grow(&mut self.envelopes, envelopes);
    }

    fn place(&mut self, at: usize, message: &Message, envelope: &[u8]) {
        let group = &mut self.groups[at];
        let value = message.value.unwrap_or_default();
        self.rows[group.rows[1] as usize] = Row {
            offset: message.offset,
            timestamp_ms: message.timestamp_ms,
            size: message.value.map_or(NO_VALUE, |value| value.len() as u32),
            envelope: envelope.len() as u32,
            source: message.source,
            error: message.error,
        };
        group.rows[1] += 1;
        put(&mut self.values, &mut group.values[1], value);
        put(&mut self.envelopes, &mut group.envelopes[1], envelope);
    }
}

fn grow<T: Clone + Default>(vector: &mut Vec<T>, size: i64) {
    if vector.len() < size as usize {
        vector.resize(size as usize, T::default());
    }
}

fn put(into: &mut [u8], end: &mut i64, bytes: &[u8]) {
    let begin = *end as usize;
    into[begin..begin + bytes.len()].copy_from_slice(bytes);
    *end += bytes.len() as i64;
}
