#include <flatshard/checkpoint/save.hpp>

#include <optional>

#include "save_parts.hpp"

namespace flatshard {

namespace {

using detail::RangeWriter;
using detail::SaveLayout;
using detail::Staging;
using detail::WriteJob;

/// What one rank needs during one save.
struct Saving {
  Saving(Engine& saved, const SaveOptions& chosen)
      : engine(saved),
        options(chosen),
        layout(detail::plan_save(engine, options)),
        manifest(detail::describe(engine, options)),
        agreement(engine.communicator(), engine.device()),
        staging(engine.device(), options.block_bytes),
        writer(layout, engine.device().host_memory(), options) {}

  Rank rank() const { return agreement.rank(); }
  std::vector<WriteJob> jobs(Rank of) const {
    return detail::jobs_of(layout, engine.plan(), engine.model(), of);
  }
  CommitOptions commit_options() const {
    return detail::commit_options(options, layout, manifest.step);
  }

  Engine& engine;
  const SaveOptions& options;
  SaveLayout layout;
  Manifest manifest;
  detail::CommunicatorAgreement agreement;
  Staging staging;
  RangeWriter writer;
};

void write_own_ranges(Saving& save, const Folder& stage) {
  for (const WriteJob& job : save.jobs(save.rank())) {
    const DType from = job.piece.dtype, to = job.into.dtype;
    const std::byte* source = detail::address_of(save.engine, job.piece);
    detail::for_each_block(job.piece.count, save.staging.block_elements(from, to),
                           [&](Elements first, Elements count) {
                             const auto bytes = save.staging.fetch(source + first * size_of(from),
                                                                   from, to, count);
                             save.writer.write(stage, job, first, bytes);
                           });
  }
  save.writer.finish();
}

SaveReport save_by_every_rank(Saving& save) {
  Commit commit(save.agreement, save.commit_options(), detail::operations_of(save.options));
  if (save.rank() == 0) commit.run([&](const Folder& stage) { save.writer.create(stage); });
  commit.agree();
  commit.run([&](const Folder& stage) { write_own_ranges(save, stage); });
  const std::string path = commit.publish([&](const Folder&) {
    const auto texts = save.agreement.all_gather(detail::to_text(save.writer.digests()));
    return detail::with_files(save.manifest, save.layout, detail::digests_from(texts));
  });
  return {path, commit.warnings()};
}

/// The block as the file has it, in device memory of every rank; it comes from rank `owner`.
const std::byte* shared_block(Saving& save, Rank owner, const WriteJob& job, Elements first,
                              Elements count) {
  const DType from = job.piece.dtype, to = job.into.dtype;
  const Bytes bytes = count * size_of(to);
  std::byte* block = save.staging.device_block();
  if (save.rank() == owner) {
    const std::byte* source = detail::address_of(save.engine, job.piece) + first * size_of(from);
    const std::byte* converted = save.staging.convert(source, from, to, count);
    if (converted != block)
      save.staging.device().copy(converted, block, bytes, save.staging.stream());
  }
  save.engine.communicator().broadcast("checkpoint", block, bytes, DType::UInt8, owner,
                                       save.staging.stream());
  save.staging.stream().synchronize();
  return block;
}

/// Every rank's blocks in turn; `write` is called on rank 0.
template <class Write>
void gather_blocks(Saving& save, const Write& write) {
  for (Rank owner = 0; owner < save.agreement.size(); ++owner)
    for (const WriteJob& job : save.jobs(owner)) {
      const Elements most = save.staging.block_elements(job.piece.dtype, job.into.dtype);
      detail::for_each_block(job.piece.count, most, [&](Elements first, Elements count) {
        const std::byte* block = shared_block(save, owner, job, first, count);
        if (save.rank() == 0)
          write(job, first, save.staging.fetch(block, job.into.dtype, job.into.dtype, count));
      });
    }
}

/// Only rank 0 touches the disk: its commit agrees with nobody, and the others hear how it went.
SaveReport save_by_rank_zero(Saving& save) {
  SoloAgreement alone;
  std::optional<Commit> commit;
  std::optional<Folder> stage;
  detail::SharedFailure failure(save.agreement, "save");
  SaveReport report;
  if (save.rank() == 0)
    failure.run([&] {
      commit.emplace(alone, save.commit_options(), detail::operations_of(save.options));
      commit->run([&](const Folder& folder) { save.writer.create(folder); });
      commit->agree();
      stage.emplace(
          enter_stage(save.options.folder, commit->stage(), detail::operations_of(save.options)));
    });
  failure.agree();
  gather_blocks(save, [&](const WriteJob& job, Elements first, std::span<const std::byte> bytes) {
    failure.run([&] { save.writer.write(*stage, job, first, bytes); });
  });
  if (save.rank() == 0)
    failure.run([&] {
      commit->run([&](const Folder&) { save.writer.finish(); });
      report.path = commit->publish([&](const Folder&) {
        return detail::with_files(save.manifest, save.layout, save.writer.digests());
      });
      report.warnings = commit->warnings();
    });
  failure.agree();
  report.path = save.agreement.from_rank_0(report.path);
  return report;
}

}  // namespace

SaveReport save_checkpoint(Engine& engine, const SaveOptions& options) {
  engine.begin_state_read("save_checkpoint()");
  Saving save(engine, options);
  if (options.writers == Writers::RankZero) return save_by_rank_zero(save);
  return save_by_every_rank(save);
}

}  // namespace flatshard
