//! Batches of Kafka's client, sorted: no object of Python for a message.
//!
//! The client is the librdkafka that Python has loaded; what is used of it are functions and a struct of its
//! public interface (rdkafka.h), handed over as addresses.
#![allow(unsafe_code)] // pointers come from C

use crate::arrow::elements;
use crate::ffi::{Status, free, guarded};
use crate::grouping::{
    Group, Grouping, Header, Message, Names, ODD, Row, Source, Step, UNDECIDED, append_envelope,
};
use std::ffi::{CStr, c_char, c_int, c_void};
use std::{ptr, slice};

/// `rd_kafka_message_t`.
#[repr(C)]
struct RdMessage {
    error: c_int,
    topic: *mut c_void,
    partition: i32,
    payload: *const u8,
    size: usize,
    key: *const u8,
    key_size: usize,
    offset: i64,
    private: *mut c_void,
}

type Rd = *mut RdMessage;

/// Functions of librdkafka: `rd_kafka_consume_batch_queue`, `_message_destroy`, `_message_headers`,
/// `_header_get_all`, `_message_timestamp`, `_topic_name`.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Client {
    consume: unsafe extern "C" fn(*mut c_void, c_int, *mut Rd, usize) -> isize,
    destroy: unsafe extern "C" fn(Rd),
    headers: unsafe extern "C" fn(Rd, *mut *mut c_void) -> c_int,
    header_at:
        unsafe extern "C" fn(*mut c_void, usize, *mut *const c_char, *mut *const u8, *mut usize) -> c_int,
    timestamp: unsafe extern "C" fn(Rd, *mut c_int) -> i64,
    topic_name: unsafe extern "C" fn(*mut c_void) -> *const c_char,
}

/// A queue of messages, and what was taken from it last.
pub struct Consumption {
    client: Client,
    queue: *mut c_void,
    value_bytes_max: usize,
    sources: Vec<(Box<[u8]>, i32, Source)>,
    names: Names,
    grouping: Grouping,
    batch: Vec<Rd>,
    envelopes: Vec<u8>,
}

/// What was taken. The arrays are the consumption's until its next call. `generation` changes when names get
/// other numbers; with `errors` all messages are undecided.
#[repr(C)]
pub struct ConsumeResult {
    errors: i64,
    generation: u64,
    group_count: i64,
    groups: *const Group,
    rows: *const Row,
    values: *const u8,
    envelopes: *const u8,
}

/// Messages that are given back to the client, whatever happens.
struct Taken<'a>(&'a Client, &'a [Rd]);

impl Drop for Taken<'_> {
    fn drop(&mut self) {
        for &message in self.1 {
            // SAFETY: each is of the client, and was not given back.
            unsafe { (self.0.destroy)(message) };
        }
    }
}

/// Begins to take messages from a queue. Values of more bytes are odd.
///
/// # Safety
/// `client` are the functions of the library that made `queue`, which lives until `firn_consume_free`; `out` can
/// be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_consume_new(
    client: *const Client,
    queue: *mut c_void,
    value_bytes_max: u64,
    out: *mut *mut Consumption,
) -> Status {
    guarded(|| {
        let consumption = Consumption {
            // SAFETY: the caller's promise.
            client: unsafe { *client },
            queue,
            value_bytes_max: usize::try_from(value_bytes_max).ok()?,
            sources: Vec::new(),
            names: Names::default(),
            grouping: Grouping::default(),
            batch: Vec::new(),
            envelopes: Vec::new(),
        };
        // SAFETY: the caller's promise.
        unsafe { out.write(Box::into_raw(Box::new(consumption))) };
        Some(())
    })
}

/// Frees it.
///
/// # Safety
/// It is of `firn_consume_new`, no call is using it, and none will.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_consume_free(consumption: *mut Consumption) -> Status {
    // SAFETY: the caller's promise.
    unsafe { free(consumption) }
}

/// Tells of a partition whose messages come by the queue. `rules`: a `z` where messages without a value say
/// something, those for the tenant, a `.`, those for the stream (`Step`). Each is `k`, `c`, `e`, `h` and a header's name, or `f`, a field's name, odd keys and an empty one;
/// names and keys end with a zero.
///
/// # Safety
/// It is of `firn_consume_new`, and no other call is using it; `topic` ends with a zero, `rules` has so many
/// bytes as said.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_consume_source(
    consumption: *mut Consumption,
    topic: *const c_char,
    partition: i32,
    number: i32,
    plan: u32,
    rules: *const u8,
    rules_size: i64,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise, for all three.
        let (consumption, topic, rules) =
            unsafe { (consumption.as_mut()?, CStr::from_ptr(topic), elements(rules, rules_size)?) };
        let takes_empty = rules.starts_with(b"z");
        let rules = steps_of(&rules[usize::from(takes_empty)..])?;
        let source = Source { number, plan, takes_empty, rules };
        consumption.sources.push((topic.to_bytes().into(), partition, source));
        Some(())
    })
}

/// Takes at most `count` messages, within so much time.
///
/// # Safety
/// It is of `firn_consume_new`, and no other call is using it; `result` can be written.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn firn_consume_take(
    consumption: *mut Consumption,
    timeout_ms: i32,
    count: i64,
    result: *mut ConsumeResult,
) -> Status {
    guarded(|| {
        // SAFETY: the caller's promise, for both.
        unsafe {
            let told = consumption.as_mut()?.take(timeout_ms, usize::try_from(count).ok()?);
            result.write(told);
        }
        Some(())
    })
}

fn steps_of(mut told: &[u8]) -> Option<[Vec<Step>; 2]> {
    let mut rules = [Vec::new(), Vec::new()];
    let mut at = 0;
    while let Some((kind, rest)) = told.split_first() {
        told = rest;
        let step = match kind {
            b'.' => {
                at += 1;
                continue;
            }
            b'k' => Step::Key,
            b'c' => Step::Constant,
            b'e' => Step::Elsewhere,
            b'h' => Step::Header(cut_name(&mut told)?),
            b'f' => {
                let (field, mut odd) = (cut_name(&mut told)?, Vec::new());
                loop {
                    match cut_name(&mut told)? {
                        key if key.is_empty() => break Step::Field(field, odd),
                        key => odd.push(key),
                    }
                }
            }
            _ => return None,
        };
        rules.get_mut(at)?.push(step);
    }
    Some(rules)
}

fn cut_name(told: &mut &[u8]) -> Option<Box<[u8]>> {
    let end = told.iter().position(|&byte| byte == 0)?;
    let name = told[..end].into();
    *told = &told[end + 1..];
    Some(name)
}

impl Consumption {
    fn take(&mut self, timeout_ms: i32, count: usize) -> ConsumeResult {
        self.batch.resize(count, ptr::null_mut());
        let (client, queue) = (self.client, self.queue);
        // SAFETY: the batch has so many places, and the queue lives (`firn_consume_new`).
        let came = unsafe { (client.consume)(queue, timeout_ms, self.batch.as_mut_ptr(), count) };
        let taken = Taken(&client, &self.batch[..usize::try_from(came).unwrap_or(0)]);
        self.names.begin();
        self.envelopes.clear();
        let mut messages = Vec::with_capacity(taken.1.len());
        let (mut place, mut source, mut errors) = ((ptr::null_mut(), -1), None, 0);
        let mut headers = Vec::new();
        for &pointer in taken.1 {
            // SAFETY: a message of the client, which lives as long as `taken`, as do its key, value and headers.
            let message = unsafe { &*pointer };
            if (message.topic, message.partition) != place {
                place = (message.topic, message.partition);
                source = source_of(&self.sources, &client, place);
            }
            // SAFETY: as above.
            let (key, value) =
                unsafe { (bytes(message.key, message.key_size), bytes(message.payload, message.size)) };
            // SAFETY: as above.
            unsafe { read_headers(&client, pointer, &mut headers) };
            let begin = self.envelopes.len();
            let is_readable = append_envelope(&mut self.envelopes, key, &headers);
            let size = value.map_or(0, <[u8]>::len);
            errors += i64::from(message.error != 0 || source.is_none());
            let name = match source {
                None => UNDECIDED,
                Some(_) if size > self.value_bytes_max || !is_readable => ODD,
                Some(source) if size == 0 && !source.takes_empty => ODD,
                Some(source) => self.names.find(source, key, value.unwrap_or_default(), &headers),
            };
            messages.push(Message {
                source: source.map_or(-1, |source| source.number),
                error: message.error,
                offset: message.offset,
                // SAFETY: as above.
                timestamp_ms: unsafe { (client.timestamp)(pointer, &mut 0) },
                value,
                envelope: begin..self.envelopes.len(),
                name,
            });
        }
        if errors > 0 {
            messages.iter_mut().for_each(|message| message.name = UNDECIDED);
        }
        self.grouping.fill(&messages, &self.envelopes);
        ConsumeResult {
            errors,
            generation: self.names.generation,
            group_count: self.grouping.groups.len() as i64,
            groups: self.grouping.groups.as_ptr(),
            rows: self.grouping.rows.as_ptr(),
            values: self.grouping.values.as_ptr(),
            envelopes: self.grouping.envelopes.as_ptr(),
        }
    }
}

fn source_of<'a>(
    sources: &'a [(Box<[u8]>, i32, Source)],
    client: &Client,
    (topic, partition): (*mut c_void, i32),
) -> Option<&'a Source> {
    if topic.is_null() {
        return None;
    }
    // SAFETY: the topic of a message that lives.
    let name = unsafe { CStr::from_ptr((client.topic_name)(topic)) }.to_bytes();
    sources.iter().find(|(known, number, _)| &known[..] == name && *number == partition).map(|found| &found.2)
}

/// Headers in their order; none where the client gives none.
///
/// # Safety
/// The message is the client's, and lives during 'a.
unsafe fn read_headers<'a>(client: &Client, message: Rd, found: &mut Vec<Header<'a>>) {
    found.clear();
    let mut headers = ptr::null_mut();
    // SAFETY: the caller's promise; what is written to lives.
    if unsafe { (client.headers)(message, &raw mut headers) } != 0 {
        return;
    }
    let (mut name, mut value, mut size) = (ptr::null(), ptr::null(), 0);
    // SAFETY: as above; the client ends the list by an error.
    while unsafe { (client.header_at)(headers, found.len(), &raw mut name, &raw mut value, &raw mut size) }
        == 0
    {
        // SAFETY: names end with a zero, values have so many bytes as said.
        found.push(unsafe { (CStr::from_ptr(name).to_bytes(), bytes(value, size)) });
    }
}

/// Bytes of C; None where their place is nowhere.
///
/// # Safety
/// There are so many, and they live during 'a.
unsafe fn bytes<'a>(first: *const u8, size: usize) -> Option<&'a [u8]> {
    // SAFETY: the caller's promise.
    (!first.is_null()).then(|| unsafe { slice::from_raw_parts(first, size) })
}
