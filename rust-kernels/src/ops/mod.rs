//! The ops of a plan, a module each: what its words are and what they must say, how its work is cut into items, and its
//! kernel. docs/ADDING_A_MODEL.md says how to add one.
pub mod activated;
pub mod altup;
pub mod altup_correct;
pub mod altup_predict;
pub mod attention;
pub mod candidates;
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
pub mod glu;
pub mod grouped_norm;
pub mod head_matmul;
pub mod join;
pub mod keep;
pub mod layer_norm;
pub mod mamba2;
pub mod match_rms;
pub mod matmul;
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
pub mod text_attention;

use self::pool::Way;
use crate::bail;
use crate::error::Result;
use crate::executor::{Run, Work};
use crate::program::{Operands, Out, Program};

/// An op, decoded and checked.
pub trait Op: Send + Sync {
    /// Floats of working memory that a thread wants.
    fn scratch(&self, _program: &Program) -> usize {
        0
    }

    /// How the op pools sequences; none for all but one.
    fn pools(&self) -> Option<Way> {
        None
    }

    /// Floats of a pooled row that the op gives back; none for all but one.
    fn returns(&self) -> Option<usize> {
        None
    }

    /// Tokens of a text, at most, where a text must be whole in its step; none for ops to which it may come in pieces.
    fn longest_text(&self) -> Option<usize> {
        None
    }

    /// Whether a draft begins with the op.
    fn begins_draft(&self) -> bool {
        false
    }

    /// Whether the step has nothing for the op, which is then not run.
    fn is_idle(&self, _run: &Run) -> bool {
        false
    }

    /// The one buffer that the op reads, row by row, and what it makes of each: work of so little that every thread may do a
    /// row's for itself, instead of waiting for the one that does it. None for most.
    fn repeats(&self) -> Option<(usize, Out)> {
        None
    }

    /// The rows that the op reads, of which each thread may have its own copy, and the buffers that it writes. None for most.
    fn takes_copies(&self) -> Option<(Out, Vec<usize>)> {
        None
    }

    /// Computes a thread's share: every thread calls it once a step, and takes items from `work` until there are none.
    fn run(&self, run: &Run, work: &Work);
}

/// How an op comes out of its words.
trait Decode: Op + Sized + 'static {
    /// # Errors
    /// Words that are not this op's, or operands that do not fit it or each other.
    fn decode(operands: &mut Operands) -> Result<Self>;
}

macro_rules! ops {
    ($($code:literal => $op:ty,)*) => {
        /// The next op.
        ///
        /// # Errors
        /// An unknown code, or what the op refuses.
        pub fn decode(operands: &mut Operands) -> Result<Box<dyn Op>> {
            Ok(match operands.words.u32()? {
                $($code => Box::new(<$op>::decode(operands)?),)*
                code => bail!("unknown code {code}"),
            })
        }
    };
}

// By the codes of engine/plan/encode.ts.
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
}
