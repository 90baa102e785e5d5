//! The keys of objects met so far, as a tree: a node is a key below its object, so a path of keys is a route.
//!
//! Records look alike, so the tree remembers which keys came behind which and compares a record with those
//! before it looks a key up. Nothing but speed depends on it.

use crate::scan::{literal, skip_blanks, text_stop};
use crate::text::append_text;
use std::collections::HashMap;

/// Nodes of a tree.
pub const NODES_MAX: usize = 40_000;
/// Bytes of the keys along a route.
pub const ROUTE_BYTES_MAX: usize = 2_048;
/// Bytes of all routes.
const ROUTES_BYTES_MAX: usize = 8 << 20;

/// A node's place in its tree.
pub type NodeId = usize;

/// The object that a record is.
pub const ROOT: NodeId = 0;

/// A key below its object.
#[derive(Default)]
pub struct Node {
    /// The record that had the key last.
    pub record: u64,
    /// The key's column, where `call` is the parser's; else it has none yet.
    pub column: usize,
    pub call: u64,
    /// Bytes a row that the column had last, to reserve memory by.
    pub row_bytes: usize,
    /// Whether the key makes a record odd.
    pub is_odd: bool,
    parent: NodeId,
    key: Box<[u8]>,
    /// The key as a record spelled it first, with quotes and colon.
    spelled: Box<[u8]>,
    route_bytes: usize,
    children: HashMap<Box<[u8]>, NodeId>,
    /// The keys that came first in this object, and those that came behind this key, the latest first; ROOT
    /// for none, as no key is.
    first: [NodeId; 2],
    next: [NodeId; 2],
}

/// All keys; bounded, and forgotten as a whole.
pub struct KeyTree {
    pub nodes: Vec<Node>,
    odd_keys: Vec<Box<[u8]>>,
    routes_bytes: usize,
    decoded: Vec<u8>,
}

impl KeyTree {
    /// `odd_keys`: keys of the root that are marked as odd.
    pub fn new(odd_keys: Vec<Box<[u8]>>) -> Self {
        Self { nodes: vec![Node::default()], odd_keys, routes_bytes: 0, decoded: Vec::new() }
    }

    /// Forgets all keys where fewer than half as many again could be learned. Returns whether it did.
    pub fn forget_if_half_full(&mut self) -> bool {
        let is_half_full = self.nodes.len() > NODES_MAX / 2 || self.routes_bytes > ROUTES_BYTES_MAX / 2;
        if is_half_full {
            self.nodes = vec![Node::default()];
            self.routes_bytes = 0;
        }
        is_half_full
    }

    /// The key that stands at a place of a record, and the place behind its colon. `object`: whose key it is;
    /// `previous`: the key before it, ROOT for the first. None where the record is broken there, and for a
    /// key beyond the bounds or with a lone surrogate.
    #[inline]
    pub fn key(
        &mut self,
        record: &[u8],
        at: usize,
        object: NodeId,
        previous: NodeId,
    ) -> Option<(NodeId, usize)> {
        let rest = record.get(at..)?;
        for guess in *self.guesses(object, previous) {
            if guess != ROOT && rest.starts_with(&self.nodes[guess].spelled) {
                return Some((guess, at + self.nodes[guess].spelled.len()));
            }
        }
        let (node, end) = self.look_up(record, at, object)?;
        let guesses = self.guesses(object, previous);
        *guesses = [node, guesses[0]];
        Some((node, end))
    }

    fn guesses(&mut self, object: NodeId, previous: NodeId) -> &mut [NodeId; 2] {
        if previous == ROOT { &mut self.nodes[object].first } else { &mut self.nodes[previous].next }
    }

    fn look_up(&mut self, record: &[u8], at: usize, object: NodeId) -> Option<(NodeId, usize)> {
        let begin = literal(record, at, b"\"")?;
        let (stop, is_high) = text_stop(record, begin)?;
        let end = if is_high || record[stop] == b'\\' {
            self.decoded.clear();
            append_text(record, begin, &mut self.decoded)?
        } else {
            stop + 1
        };
        let key = if end == stop + 1 { &record[begin..stop] } else { &self.decoded };
        let after = literal(record, skip_blanks(record, end), b":")?;
        if let Some(&node) = self.nodes[object].children.get(key) {
            return Some((node, after));
        }
        let (key, spelled) = (Box::from(key), [&record[at..end], b":"].concat());
        Some((self.add(object, key, spelled)?, after))
    }

    fn add(&mut self, parent: NodeId, key: Box<[u8]>, spelled: Vec<u8>) -> Option<NodeId> {
        let node = self.nodes.len();
        let route_bytes = self.nodes[parent].route_bytes + key.len();
        let routes_bytes = self.routes_bytes + route_bytes;
        // A key may be spelled with six bytes for each of its own.
        if node >= NODES_MAX
            || route_bytes > ROUTE_BYTES_MAX
            || spelled.len() > ROUTE_BYTES_MAX
            || routes_bytes > ROUTES_BYTES_MAX
        {
            return None;
        }
        self.routes_bytes = routes_bytes;
        self.nodes[parent].children.insert(key.clone(), node);
        self.nodes.push(Node {
            is_odd: parent == ROOT && self.odd_keys.contains(&key),
            parent,
            key,
            spelled: spelled.into_boxed_slice(),
            route_bytes,
            ..Node::default()
        });
        Some(node)
    }

    /// Appends the keys of a node's route, the outermost first, each as its length (four bytes, the lowest
    /// first) and its bytes.
    pub fn append_route(&self, node: NodeId, out: &mut Vec<u8>) {
        if node != ROOT {
            let Node { parent, key, .. } = &self.nodes[node];
            self.append_route(*parent, out);
            out.extend_from_slice(&(key.len() as u32).to_le_bytes());
            out.extend_from_slice(key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree() -> KeyTree {
        KeyTree::new(vec![Box::from(&b"odd"[..])])
    }

    #[test]
    fn a_key_is_one_node_however_it_is_spelled() {
        let mut tree = tree();
        let (node, end) = tree.key(br#""abc":1"#, 0, ROOT, ROOT).unwrap();
        assert_eq!(end, 6);
        for spelled in [&br#""abc":"#[..], br#""abc" :"#, br#""\u0061bc":"#, br#""a\u0062c"  :"#] {
            assert_eq!(tree.key(spelled, 0, ROOT, ROOT), Some((node, spelled.len())));
        }
        let (other, _) = tree.key(br#""abc":"#, 0, node, ROOT).unwrap();
        assert_ne!(other, node);
        let mut route = Vec::new();
        tree.append_route(other, &mut route);
        assert_eq!(route, b"\x03\0\0\0abc\x03\0\0\0abc");
    }

    #[test]
    fn guesses_never_take_a_key_for_a_longer_one() {
        let mut tree = tree();
        let (short, _) = tree.key(br#""a":"#, 0, ROOT, ROOT).unwrap();
        let (long, _) = tree.key(br#""ab":"#, 0, ROOT, ROOT).unwrap();
        let (quoted, _) = tree.key(br#""a\":":"#, 0, ROOT, ROOT).unwrap();
        assert_eq!(tree.key(br#""a":"#, 0, ROOT, ROOT), Some((short, 4)));
        assert_eq!(tree.key(br#""ab":"#, 0, ROOT, ROOT), Some((long, 5)));
        assert_eq!(tree.key(br#""a\":":"#, 0, ROOT, ROOT), Some((quoted, 7)));
    }

    #[test]
    fn broken_keys_are_none() {
        for bad in [&b"a:"[..], b"", b"\"a", b"\"a\"", b"\"a\" 1", b"\"\xff\":", br#""\ud800":"#, br#""\x":"#]
        {
            assert_eq!(tree().key(bad, 0, ROOT, ROOT), None, "{bad:?}");
        }
    }

    #[test]
    fn odd_keys_are_so_at_the_root_alone() {
        let mut tree = tree();
        let (node, _) = tree.key(br#""odd":"#, 0, ROOT, ROOT).unwrap();
        let (below, _) = tree.key(br#""odd":"#, 0, node, ROOT).unwrap();
        assert!(tree.nodes[node].is_odd && !tree.nodes[below].is_odd);
    }

    #[test]
    fn the_tree_is_bounded_and_forgets_when_half_full() {
        let mut tree = tree();
        let long = format!("\"{}\":", "k".repeat(ROUTE_BYTES_MAX + 1));
        assert_eq!(tree.key(long.as_bytes(), 0, ROOT, ROOT), None);
        let mut learned = 0;
        for number in 0..2 * NODES_MAX {
            learned += usize::from(tree.key(format!("\"{number}\":").as_bytes(), 0, ROOT, ROOT).is_some());
        }
        assert_eq!(learned, NODES_MAX - 1);
        assert!(tree.forget_if_half_full());
        assert!(!tree.forget_if_half_full());
        assert!(tree.key(b"\"new\":", 0, ROOT, ROOT).is_some());
        let mut long_ones = 0;
        for number in 0..NODES_MAX {
            let key = format!("\"{number:01000}\":");
            long_ones += usize::from(tree.key(key.as_bytes(), 0, ROOT, ROOT).is_some());
        }
        assert!(long_ones * 1_000 <= ROUTES_BYTES_MAX && long_ones * 1_000 > ROUTES_BYTES_MAX - 2_000);
    }
}
