//! Finds ops that every thread computes for itself when a step has a single row. This saves the barrier behind the op,
//! and costs no time: otherwise one thread would compute it while the others wait.
use super::{Buffer, Out, Program};
use crate::ops::Op;
use std::ops::Range;

/// The layout of a thread's own copy of an op's result, which has one row in each of the result's buffers.
#[derive(Clone, Copy, Debug)]
pub struct OwnRow {
    pub out: Out,
    /// Offsets in bytes behind the float row, and behind the one-plane row. The next row starts there.
    ends: [usize; 2],
    pub bytes: usize,
}

impl OwnRow {
    fn new(out: Out, buffers: &[Buffer]) -> Option<Self> {
        let bytes = |form: Option<usize>| form.map_or(Some(0), |i| Some(buffers[i].bytes(1)?.next_multiple_of(64)));
        let [float, quant, fine] = [bytes(out.float)?, bytes(out.quant)?, bytes(out.fine)?];
        Some(Self { out, ends: [float, float + quant], bytes: float + quant + fine })
    }

    /// Returns the offset of a buffer's row in the copy; None for buffers that are not copied.
    pub fn place(&self, index: usize) -> Option<usize> {
        let Out { float, quant, fine } = self.out;
        let [after_float, after_quant] = self.ends;
        [(float, 0), (quant, after_float), (fine, after_quant)]
            .into_iter()
            .find(|(form, _)| *form == Some(index))
            .map(|(_, at)| at)
    }
}

/// Returns for each op the layout of a thread's own copy of the result; None if threads must not compute the op for
/// themselves.
pub fn find(p: &Program) -> Vec<Option<OwnRow>> {
    // Returns the byte range of a buffer in the arena.
    let place = |index: usize| {
        let buffer = &p.buffers[index];
        Some(buffer.offset..buffer.offset + buffer.bytes(p.most_rows(buffer.rows)?)?)
    };
    let owned = |i: usize| {
        let (op, next) = (&p.ops[i], p.ops.get(i + 1)?);
        OwnRow::new(repeated(op.as_ref(), next.as_ref(), &place)?, &p.buffers)
    };
    (0..p.ops.len()).map(owned).collect()
}

/// Returns the buffers of the op's result if every thread may compute it for itself. A fast thread must not change
/// bytes that a slower thread still reads. So neither this op nor the next may write its operand.
fn repeated(op: &dyn Op, next: &dyn Op, place: &impl Fn(usize) -> Option<Range<usize>>) -> Option<Out> {
    let ((x, out), (read, written)) = (op.repeats()?, next.takes_copies()?);
    let x = place(x)?;
    let apart = |index| place(index).is_some_and(|bytes| bytes.end <= x.start || x.end <= bytes.start);
    let copied = read.forms().all(|form| out.forms().any(|made| made == form));
    (copied && written.into_iter().chain(out.forms()).all(apart)).then_some(out)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executor::{Run, Work};

    struct Repeats(usize, Out);
    impl Op for Repeats {
        fn repeats(&self) -> Option<(usize, Out)> {
            Some((self.0, self.1))
        }
        fn run(&self, _: &Run, _: &Work) {}
    }

    struct TakesCopies(Out, Vec<usize>);
    impl Op for TakesCopies {
        fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
            Some((self.0, self.1.clone()))
        }
        fn run(&self, _: &Run, _: &Work) {}
    }

    fn out(float: Option<usize>, quant: Option<usize>) -> Out {
        Out { float, quant, fine: None }
    }

    /// Returns test buffers of 64 bytes. Buffer 8 starts in the middle of buffer 0.
    fn place(index: usize) -> Option<Range<usize>> {
        let start = if index == 8 { 32 } else { 128 * index };
        Some(start..start + 64)
    }

    #[test]
    fn repeated_needs_an_operand_that_neither_op_writes() {
        let norm = Repeats(0, out(Some(1), Some(2)));
        let owned = |read, written: &[usize]| repeated(&norm, &TakesCopies(read, written.to_vec()), &place).is_some();
        assert!(owned(out(Some(1), None), &[3, 4]));
        assert!(owned(out(Some(1), Some(2)), &[3]));
        assert!(!owned(out(Some(1), Some(5)), &[3]), "of what it reads one form is another op's");
        assert!(!owned(out(None, Some(2)), &[3, 0]), "it adds to what the norm reads");
        assert!(!owned(out(None, Some(2)), &[8]), "it writes where the norm's rows were");
        let in_place = Repeats(0, out(Some(0), None));
        assert!(repeated(&in_place, &TakesCopies(out(Some(0), None), vec![3]), &place).is_none());
        assert!(repeated(&norm, &norm, &place).is_none(), "a norm of a norm waits");
    }

    #[test]
    fn place_puts_the_rows_of_all_buffers_one_behind_the_other() {
        let rows = crate::program::Rows::Step;
        let kinds = [crate::program::Kind::Float, crate::program::Kind::Quant];
        let buffers: Vec<_> = kinds.map(|kind| Buffer { kind, rows, columns: 64, offset: 0 }).into();
        let row = OwnRow::new(out(Some(0), Some(1)), &buffers).expect("small");
        let ends = [buffers[0].bytes(1), buffers[1].bytes(1)].map(|bytes| bytes.expect("small"));
        assert_eq!((row.place(0), row.place(1), row.place(2)), (Some(0), Some(ends[0]), None));
        assert!(row.bytes >= ends[0] + ends[1]);
    }
}
