#include "commands.hpp"
#include "files.hpp"
#include "translate.hpp"

namespace flatshard_tool {

Outcome run_translate(const TranslateRequest& request) {
  const Setting setting = read_setting(request.file, request.options);
  const Equivalent equivalent = equivalent_of(setting);
  if (!request.output.empty()) write_new_file(request.output, equivalent.text);
  return {describe(setting, equivalent), success};
}

}  // namespace flatshard_tool
