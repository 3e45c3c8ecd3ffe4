#include <doctest/doctest.h>

#include <filesystem>
#include <fstream>

#include "commit_cases.hpp"

using namespace flatshard;
using namespace commit_cases;

namespace {

void write_text(const std::string& path, const std::string& text) { std::ofstream(path) << text; }

constexpr std::uint64_t any_id = 0x0123456789abcdef;

}  // namespace

TEST_CASE("names of steps and stages have one spelling") {
  CHECK(step_folder_name(1000) == "step-1000");
  CHECK(step_of("step-0") == 0);
  CHECK(step_of("step-9223372036854775807") == 9223372036854775807);
  for (const char* name : {"step-", "step-01", "step--1", "step-+1", "step-1 ", "Step-1", "step-1x",
                           "step-9223372036854775808", "xstep-1", ""})
    CHECK_FALSE(step_of(name));
  const StageName stage{42, any_id};
  CHECK(stage.folder_name() == ".tmp-42-0123456789abcdef");
  CHECK(StageName::parse(stage.folder_name()) == stage);
  for (const char* name : {".tmp-42-123", ".tmp-42-0123456789ABCDEF", ".tmp-042-0123456789abcdef",
                           ".tmp--0123456789abcdef", ".tmp-42", "tmp-42-0123456789abcdef"})
    CHECK_FALSE(StageName::parse(name));
}

TEST_CASE("latest is a hint: what is not whole is passed over, for the newest that is") {
  const ScratchFolder scratch;
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), IoError);
  Folder::open_or_create(scratch / "run");
  CHECK_FALSE(find_checkpoint(scratch / "run"));
  for (const std::int64_t step : {1, 2, 3, 20}) save(scratch, step);
  const auto step_found = [&] { return find_checkpoint(scratch / "run")->manifest.step; };
  const std::string latest = scratch / "run/latest";
  CHECK(step_found() == 20);
  write_text(latest, "step-2\n");  // a run that was resumed from step 1
  CHECK(step_found() == 2);
  for (const char* text : {"", "step-4\n", "../step-1\n", "step-1/../step-2\n", "step-02"}) {
    write_text(latest, text);
    CHECK(step_found() == 20);
    CHECK(find_checkpoint(scratch / "run")->passed_over.size() == 1);
  }
  std::filesystem::remove(latest);
  CHECK(step_found() == 20);
  std::filesystem::resize_file(scratch / "run/step-20/data.bin", 2200);
  CHECK(step_found() == 3);
  CHECK(find_checkpoint(scratch / "run")->passed_over.size() == 1);
  CHECK_THROWS_AS(find_checkpoint(scratch / "run/step-20"), ManifestError);
  std::filesystem::remove(scratch / "run/step-3/manifest.json");
  CHECK(step_found() == 2);
  std::filesystem::remove(scratch / "run/step-2/data.bin");
  CHECK(step_found() == 1);
  const auto reasons = find_checkpoint(scratch / "run")->passed_over;
  REQUIRE(reasons.size() == 3);
  CHECK(reasons[0].find("data.bin: the file has 2200 bytes instead of 2201") != std::string::npos);
  CHECK(reasons[1].find("manifest.json: No such file") != std::string::npos);
  CHECK(reasons[2].find("data.bin: the file is missing") != std::string::npos);
  std::filesystem::rename(scratch / "run/step-1", scratch / "run/step-7");
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), ManifestError);  // its manifest is of step 1
}

TEST_CASE("a checkpoint through a link is none") {
  const ScratchFolder scratch;
  save(scratch, 1);
  std::filesystem::rename(scratch / "run/step-1", scratch / "step-1");
  std::filesystem::create_directory_symlink(scratch / "step-1", scratch / "run/step-1");
  CHECK_THROWS_AS(find_checkpoint(scratch / "run"), ManifestError);
  std::filesystem::remove(scratch / "run/latest");
  CHECK_FALSE(find_checkpoint(scratch / "run"));
}
