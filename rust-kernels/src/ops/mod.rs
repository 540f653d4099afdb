//! The ops of a plan, one module each. A module decodes and checks the op's words, splits its work into items, and
//! holds its kernel. docs/ADDING_A_MODEL.md explains how to add one.
pub mod activated;
pub mod adapters;
pub mod altup;
pub mod altup_correct;
pub mod altup_predict;
pub mod attention;
pub mod candidates;
pub mod choose;
pub mod clamp;
pub mod columns;
pub mod delta_rule;
pub mod embed;
pub mod embed_positions;
pub mod expert_activated;
pub mod expert_glu;
pub mod expert_sum;
mod experts;
pub mod gate;
pub mod gated_conv;
pub mod given;
pub mod glu;
pub mod grouped_norm;
pub mod head_columns;
pub mod head_matmul;
pub mod join;
pub mod kda;
pub mod keep;
pub mod layer_norm;
pub mod low_rank;
pub mod mamba2;
pub mod match_rms;
pub mod matmul;
pub mod merge;
pub mod pool;
pub mod post_norm;
mod product;
pub mod quantize;
pub mod recall;
pub mod return_pooled;
pub mod rms_norm;
pub mod rope_append;
pub mod rope_table;
pub mod rotate;
pub mod route;
pub mod shift;
pub mod short_conv;
pub mod sparse_gate;
pub mod tally;
pub mod text_attention;

use self::pool::Way;
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Choice, Operands, Out, Program};

/// An op, decoded and checked.
pub trait Op: Send + Sync {
    /// Floats of scratch memory per thread.
    fn scratch(&self, _program: &Program) -> usize {
        0
    }

    /// How the op pools sequences; None for most ops.
    fn pools(&self) -> Option<Way> {
        None
    }

    /// Columns of the rows that steps bring to the op; None for most ops.
    fn given(&self) -> Option<usize> {
        None
    }

    /// Floats of a pooled row that the op returns; None for all ops but one.
    fn returns(&self) -> Option<usize> {
        None
    }

    /// Words of sums that the op adds to each step's output, except a draft's.
    fn tallies(&self) -> usize {
        0
    }

    /// Whether the op needs whole texts in one step.
    fn whole_texts(&self) -> bool {
        false
    }

    /// Number of positions that the op knows. None for ops that take any position.
    fn positions(&self) -> Option<usize> {
        None
    }

    /// The buffer of each row's adapters, their number, and how many a row can use; None for all ops but one.
    fn adapters(&self) -> Option<(usize, Choice)> {
        None
    }

    /// Whether a draft starts with the op.
    fn begins_draft(&self) -> bool {
        false
    }

    /// Whether the step has no work for the op. It is not run then.
    fn is_idle(&self, _run: &Run) -> bool {
        false
    }

    /// The buffer that the op reads row by row, and its result. Only for cheap ops: each thread computes a single row
    /// for itself instead of waiting for another thread. None for most ops.
    fn repeats(&self) -> Option<(usize, Out)> {
        None
    }

    /// The rows that the op reads, which may be each thread's own copy, and the buffers that it writes. None for most
    /// ops.
    fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
        None
    }

    /// Number of passes over the op's work, with a barrier between passes. Ops over whole texts have one pass.
    fn passes(&self, _run: &Run, _threads: usize) -> usize {
        1
    }

    /// Computes a thread's share of a pass. Every thread calls `run` once per pass and takes items from `work` until no
    /// item is left.
    fn run(&self, run: &Run, work: &Work);
}

/// Decodes an op from its words.
trait Decode: Op + Sized + 'static {
    /// # Errors
    /// The words are not this op's, or its operands do not fit.
    fn decode(operands: &mut Operands) -> Result<Self>;
}

macro_rules! ops {
    ($($code:literal => $op:ty,)*) => {
        /// Decodes the next op.
        ///
        /// # Errors
        /// The code is unknown, or the op rejects its operands.
        pub fn decode(operands: &mut Operands) -> Result<Box<dyn Op>> {
            Ok(match operands.words.u32()? {
                $($code => Box::new(<$op>::decode(operands)?),)*
                code => bail!("unknown code {code}"),
            })
        }
    };
}

// The codes are those of engine/plan/encode.ts.
ops! {
    0 => embed::Embed,
    1 => rope_table::RopeTable,
    2 => rms_norm::RmsNorm,
    3 => matmul::MatMul,
    4 => glu::Glu,
    5 => rope_append::RopeAppend,
    6 => attention::Attention,
    7 => quantize::Quantize,
    8 => candidates::Candidates,
    9 => short_conv::ShortConv,
    10 => delta_rule::DeltaRule,
    11 => pool::Pool,
    12 => route::Route,
    13 => expert_glu::ExpertGlu,
    14 => expert_sum::ExpertSum,
    15 => return_pooled::ReturnPooled,
    17 => activated::Activated,
    19 => post_norm::PostNorm,
    20 => gate::Gate,
    22 => layer_norm::LayerNorm,
    23 => embed_positions::EmbedPositions,
    24 => rotate::Rotate,
    25 => text_attention::TextAttention,
    26 => mamba2::Mamba2,
    27 => grouped_norm::GroupedNorm,
    28 => gated_conv::GatedConv,
    29 => shift::Shift,
    30 => join::Join,
    31 => recall::Recall,
    32 => keep::Keep,
    33 => expert_activated::ExpertActivated,
    34 => columns::Columns,
    35 => altup_predict::AltupPredict,
    36 => altup_correct::AltupCorrect,
    37 => match_rms::MatchRms,
    38 => sparse_gate::SparseGate,
    39 => head_matmul::HeadMatMul,
    40 => adapters::Adapters,
    41 => low_rank::LowRank,
    42 => given::Given,
    43 => merge::Merge,
    44 => tally::Tally,
    46 => head_columns::HeadColumns,
    47 => kda::Kda,
    48 => choose::Choose,
    49 => clamp::Clamp,
}
