// A new Sharder from an old one, without a file: another strategy, precision, wrapping,
// accumulation, or other parameters that train.
#pragma once

#include <flatshard/sharder/engine.hpp>
#include <flatshard/sharder/sharder.hpp>

namespace flatshard {

/// What carry_over may do, and how; the names are those of LoadOptions.
struct CarryOverOptions {
  bool allow_downcast = false;   // to a dtype that cannot hold the old one exactly
  bool allow_missing = false;    // what the old one has not keeps its values, states and time
  bool allow_unused = false;     // parameters and buffers of the old one that nothing takes
  bool optimizer_state = true;   // false: parameters and buffers only, the rest stays as it is
  bool hyper_parameters = true;  // of each group, until the next set_optimizer(); false: the new
                                 // one's own
  Bytes block_bytes = Bytes{4} << 20;  // of the one staging buffer, in device memory
};

/// `to` goes on where `from` stands: parameters (by name or alias), registered buffers, optimizer
/// states, time steps, loss scale (under the same rule), seed, hyper-parameters, step count. Equal
/// dtypes give equal bits, others are converted once, to nearest: the state is what save_checkpoint
/// and load_checkpoint would leave.
///
/// Parameters may begin or cease to train. Those that begin have states of zero and no update so
/// far; where others of their flat had some, give them a ParameterOptions::time_group of their own.
/// Those that cease are rounded to their compute dtype, which is what forward saw.
///
/// Collective over the communicator of `to`; blocks the host. Both must have the same ranks and the
/// same kind of device. `from` stays as it is, so both live at once: beside their Plans' bytes a
/// rank needs one block. Elements that every rank has already are copied, others broadcast block by
/// block. Throws UsageError, alike on all ranks and before anything is changed; when communication
/// fails half way, the parameters of `to` are undefined.
void carry_over(Engine& from, Engine& to, const CarryOverOptions& options = {});

/// Of Sharders.
template <StrategyPolicy OldStrategy, PrecisionPolicy OldPrecision, OffloadPolicy OldOffload,
          StrategyPolicy NewStrategy, PrecisionPolicy NewPrecision, OffloadPolicy NewOffload>
void carry_over(Sharder<OldStrategy, OldPrecision, OldOffload>& from,
                Sharder<NewStrategy, NewPrecision, NewOffload>& to,
                const CarryOverOptions& options = {}) {
  carry_over(from.engine(), to.engine(), options);
}

}  // namespace flatshard
