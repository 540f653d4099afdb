//! Ops whose items are single rows.
use super::Run;
use super::scratch::Scratch;
use crate::ops::norm::NormRow;
use crate::ops::quantize::QuantizeRow;
use crate::ops::rope::rope_table;
use crate::pool::Items;
use crate::program::{Out, Rows};
use crate::weights::Matrix;

impl Run<'_> {
    pub(super) fn embed(&self, weight: usize, out: usize, items: Items) {
        let m = self.matrix(weight);
        for row in items.flatten() {
            let token = self.step.tokens[row] as usize;
            // SAFETY: the token is below the matrix's rows, the output row has its columns.
            unsafe { self.decode_row(m, token, self.float(out, row)) }
        }
    }

    /// A row of a matrix as floats.
    ///
    /// # Safety
    /// `row` is below the matrix's rows, `out` holds its columns.
    pub(super) unsafe fn decode_row(&self, m: &Matrix, row: usize, out: *mut f32) {
        let (panel, lane) = (row / self.isa.lanes(), row % self.isa.lanes());
        // SAFETY: the caller's promise.
        unsafe { m.format.row(self.isa, m.panels.add(panel * m.panel_bytes), m.columns, lane, out) }
    }

    pub(super) fn rope_table(&self, out: usize, items: Items) {
        for row in items.flatten() {
            // SAFETY: the buffer's rows hold 2 * frequencies floats, checked at decode.
            unsafe { rope_table(self.step.position_of[row], &self.p.frequencies, self.float(out, row)) }
        }
    }

    pub(super) fn rms_norm<'i>(
        &self,
        x: usize,
        weight: usize,
        eps: f32,
        out: Out,
        items: impl Fn(usize) -> Items<'i>,
        s: &Scratch,
    ) {
        let (from, columns) = (&self.p.buffers[x], self.p.buffers[x].columns);
        let to = &self.p.buffers[out.forms().next().expect("checked at decode")];
        let gather = from.rows == Rows::Step && to.rows == Rows::Logits;
        let (outputs, weight) = (self.outputs(out), self.vector(weight, columns));
        for row in items(self.rows_of(to)).flatten() {
            let source = if gather { self.step.logits[row].row } else { row };
            // SAFETY: rows and widths were checked at decode.
            unsafe {
                self.isa.run(NormRow {
                    x: self.float(x, source),
                    weight,
                    columns,
                    eps,
                    out: &outputs,
                    row,
                    scratch: s.row,
                })
            }
        }
    }

    pub(super) fn quantize<'i>(&self, x: usize, out: usize, items: impl Fn(usize) -> Items<'i>) {
        let quant = self.quant(out);
        for row in items(self.rows_of(&self.p.buffers[x])).flatten() {
            // SAFETY: rows and widths were checked at decode.
            unsafe { self.isa.run(QuantizeRow { x: self.float(x, row), out: &quant, row }) }
        }
    }
}
