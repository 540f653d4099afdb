//! Groups the sequences of a step that decode one token and start with the same KV blocks.
use super::CHUNK;
use crate::kernels::kv::KV_BLOCK;
use crate::step::Sequence;
use std::cmp::Reverse;

/// Blocks between two rescalings of the softmax. A shared prefix must end at a chunk's end.
const CHUNK_BLOCKS: usize = CHUNK / KV_BLOCK;

/// Sequences that process their first `shared` positions together.
#[derive(Debug, PartialEq, Eq)]
pub struct Group {
    /// Indices into the step's sequences, ascending.
    pub members: Vec<usize>,
    /// Shared positions: a multiple of CHUNK, and 0 for a single sequence.
    pub shared: usize,
}

/// Puts every sequence into one group, by its blocks in layer group `tables` of the KV cache.
pub fn groups(sequences: &[Sequence], tables: usize) -> Vec<Group> {
    let mut taken = vec![false; sequences.len()];
    let mut groups = Vec::with_capacity(sequences.len());
    for first in 0..sequences.len() {
        if !taken[first] {
            let group = group_of(first, sequences, tables, &taken);
            group.members.iter().for_each(|i| taken[*i] = true);
            groups.push(group);
        }
    }
    groups
}

/// The group of `first` and later sequences that saves the most: shared chunks times the members that skip them.
fn group_of(first: usize, sequences: &[Sequence], tables: usize, taken: &[bool]) -> Group {
    let one = &sequences[first];
    let mut others: Vec<(usize, usize)> = (first + 1..sequences.len())
        .filter(|i| !taken[*i])
        .map(|i| (common_chunks(one, &sequences[i], tables), i))
        .filter(|(chunks, _)| *chunks > 0)
        .collect();
    others.sort_unstable_by_key(|(chunks, i)| (Reverse(*chunks), *i));
    let saved = |n: usize| (n + 1) * others[n].0;
    let best = (0..others.len()).max_by_key(|n| (saved(*n), *n));
    let Some(best) = best else { return Group { members: vec![first], shared: 0 } };
    let mut members: Vec<usize> = others[..=best].iter().map(|(_, i)| *i).chain([first]).collect();
    members.sort_unstable();
    Group { members, shared: others[best].0 * CHUNK }
}

/// Leading chunks with the same blocks in both caches. 0 unless both decode and have their first blocks.
fn common_chunks(a: &Sequence, b: &Sequence, tables: usize) -> usize {
    let [x, y] = [a, b].map(|sequence| &sequence.block_tables[tables]);
    if a.length != 1 || b.length != 1 || x.first != 0 || y.first != 0 {
        return 0;
    }
    let full = a.cached.min(b.cached) / CHUNK * CHUNK_BLOCKS;
    let pairs = x.blocks.iter().zip(&y.blocks);
    pairs.take(full).take_while(|(x, y)| x == y).count() / CHUNK_BLOCKS
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::step::BlockTable;

    fn decoding(cached: usize, block_table: &[i32]) -> Sequence {
        let block_tables = vec![BlockTable { first: 0, blocks: block_table.to_vec() }];
        Sequence { start: 0, length: 1, cached, block_tables, state: None, adapters: Vec::new() }
    }

    fn shared(sequences: &[Sequence]) -> Vec<(Vec<usize>, usize)> {
        groups(sequences, 0).into_iter().map(|g| (g.members, g.shared)).collect()
    }

    #[test]
    fn groups_share_whole_chunks_of_the_same_blocks() {
        let step = [
            decoding(300, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]),
            decoding(200, &[11, 12, 13, 14, 15, 16, 17]),
            decoding(290, &[1, 2, 3, 4, 5, 6, 7, 8, 9, 18]),
        ];
        assert_eq!(shared(&step), [(vec![0, 2], 256), (vec![1], 0)]);
    }

    #[test]
    fn groups_do_not_share_partial_or_different_chunks() {
        let table = [1, 2, 3, 4, 5];
        assert_eq!(shared(&[decoding(128, &table), decoding(127, &table)]), [(vec![0], 0), (vec![1], 0)]);
        assert_eq!(shared(&[decoding(130, &table), decoding(130, &[1, 2, 3, 6, 7])]), [(vec![0], 0), (vec![1], 0)]);
    }

    #[test]
    fn groups_leave_out_sequences_without_their_first_blocks() {
        let gone = |cached| {
            let mut sequence = decoding(cached, &[5, 6, 7, 8, 9, 10]);
            sequence.block_tables[0].first = 4;
            sequence
        };
        assert_eq!(shared(&[gone(300), gone(310)]), [(vec![0], 0), (vec![1], 0)]);
    }

    #[test]
    fn groups_leave_out_prefills() {
        let table = [1, 2, 3, 4, 5, 6];
        let prefill = Sequence { length: 9, ..decoding(160, &table) };
        assert_eq!(shared(&[prefill, decoding(160, &table)]), [(vec![0], 0), (vec![1], 0)]);
    }

    #[test]
    fn groups_grow_while_that_saves_more() {
        let with = |head: [i32; 8], last| [&head[..], &[last]].concat();
        let (long, short) = ([1, 2, 3, 4, 5, 6, 7, 8], [1, 2, 3, 4, 9, 9, 9, 9]);
        let of = |tables: &[[i32; 8]]| -> Vec<_> {
            tables.iter().enumerate().map(|(i, head)| decoding(260, &with(*head, 20 + i as i32))).collect()
        };
        assert_eq!(shared(&of(&[long, long, short])), [(vec![0, 1, 2], 128)]);
        assert_eq!(shared(&of(&[long, long, long, short])), [(vec![0, 1, 2], 256), (vec![3], 0)]);
    }
}
