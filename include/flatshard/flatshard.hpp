// Every public header, nothing else.
#pragma once

#include <flatshard/config.hpp>
#include <flatshard/fwd.hpp>

#include <flatshard/core/bits.hpp>
#include <flatshard/core/buffer.hpp>
#include <flatshard/core/cuda_device.hpp>
#include <flatshard/core/device.hpp>
#include <flatshard/core/error.hpp>
#include <flatshard/core/exact.hpp>
#include <flatshard/core/host_memory.hpp>
#include <flatshard/core/host_stream.hpp>
#include <flatshard/core/parking.hpp>
#include <flatshard/core/stream.hpp>
#include <flatshard/core/task.hpp>
#include <flatshard/core/types.hpp>

#include <flatshard/tensor/convert.hpp>
#include <flatshard/tensor/dlpack.hpp>
#include <flatshard/tensor/dtype.hpp>
#include <flatshard/tensor/tensor_ref.hpp>

#include <flatshard/layout/canonical.hpp>
#include <flatshard/layout/checked.hpp>
#include <flatshard/layout/flat_layout.hpp>
#include <flatshard/layout/model.hpp>
#include <flatshard/layout/module_name.hpp>
#include <flatshard/layout/nearest_names.hpp>
#include <flatshard/layout/norm_leaves.hpp>
#include <flatshard/layout/norm_tree.hpp>
#include <flatshard/layout/unit.hpp>
#include <flatshard/layout/wrap.hpp>

#include <flatshard/ops/adagrad.hpp>
#include <flatshard/ops/adam.hpp>
#include <flatshard/ops/adamw.hpp>
#include <flatshard/ops/amsgrad.hpp>
#include <flatshard/ops/conclude.hpp>
#include <flatshard/ops/cuda_steps.hpp>
#include <flatshard/ops/host_device.hpp>
#include <flatshard/ops/host_steps.hpp>
#include <flatshard/ops/init.hpp>
#include <flatshard/ops/instruction_set.hpp>
#include <flatshard/ops/kernel_table.hpp>
#include <flatshard/ops/lion.hpp>
#include <flatshard/ops/loss_scale.hpp>
#include <flatshard/ops/nadam.hpp>
#include <flatshard/ops/normal.hpp>
#include <flatshard/ops/optimizer.hpp>
#include <flatshard/ops/optimizer_concepts.hpp>
#include <flatshard/ops/power.hpp>
#include <flatshard/ops/random.hpp>
#include <flatshard/ops/reduction_tree.hpp>
#include <flatshard/ops/rmsprop.hpp>
#include <flatshard/ops/sgd.hpp>
#include <flatshard/ops/step.hpp>
#include <flatshard/ops/step_control.hpp>
#include <flatshard/ops/step_kernel.hpp>
#include <flatshard/ops/step_rows.hpp>

#include <flatshard/io/crc32c.hpp>
#include <flatshard/io/faulty_file_operations.hpp>
#include <flatshard/io/faulty_transfer_queue.hpp>
#include <flatshard/io/file.hpp>
#include <flatshard/io/file_operations.hpp>
#include <flatshard/io/folder.hpp>
#include <flatshard/io/integrity_error.hpp>
#include <flatshard/io/io_error.hpp>
#include <flatshard/io/read_ahead.hpp>
#include <flatshard/io/slot_pipeline.hpp>
#include <flatshard/io/slot_store.hpp>
#include <flatshard/io/transfer_queue.hpp>

#include <flatshard/comm/call.hpp>
#include <flatshard/comm/communicator.hpp>
#include <flatshard/comm/control_channel.hpp>
#include <flatshard/comm/decorator.hpp>
#include <flatshard/comm/faulty.hpp>
#include <flatshard/comm/mpi.hpp>
#include <flatshard/comm/nccl.hpp>
#include <flatshard/comm/recording.hpp>
#include <flatshard/comm/rendezvous.hpp>
#include <flatshard/comm/solo.hpp>
#include <flatshard/comm/threads.hpp>
#include <flatshard/comm/world_from_env.hpp>

#include <flatshard/policy/aliases.hpp>
#include <flatshard/policy/offload.hpp>
#include <flatshard/policy/precision.hpp>
#include <flatshard/policy/rules.hpp>
#include <flatshard/policy/strategy.hpp>

#include <flatshard/sharder/carry_over.hpp>
#include <flatshard/sharder/engine.hpp>
#include <flatshard/sharder/exported.hpp>
#include <flatshard/sharder/options.hpp>
#include <flatshard/sharder/params_hash.hpp>
#include <flatshard/sharder/plan.hpp>
#include <flatshard/sharder/shard_map.hpp>
#include <flatshard/sharder/sharder.hpp>
#include <flatshard/sharder/training_state.hpp>
#include <flatshard/sharder/views.hpp>

#include <flatshard/checkpoint/async_save.hpp>
#include <flatshard/checkpoint/checkpoint_folder.hpp>
#include <flatshard/checkpoint/commit.hpp>
#include <flatshard/checkpoint/find_checkpoint.hpp>
#include <flatshard/checkpoint/format_error.hpp>
#include <flatshard/checkpoint/load.hpp>
#include <flatshard/checkpoint/manifest.hpp>
#include <flatshard/checkpoint/retention.hpp>
#include <flatshard/checkpoint/safetensors.hpp>
#include <flatshard/checkpoint/save.hpp>
#include <flatshard/checkpoint/shard_index.hpp>
#include <flatshard/checkpoint/stored_type.hpp>
#include <flatshard/checkpoint/tensor_set.hpp>
