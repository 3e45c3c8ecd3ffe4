// What many files of the tool read; never included by name.
#include <fmt/format.h>
#include <flatshard/sharder/plan.hpp>

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "commands.hpp"
#include "section.hpp"
#include "source.hpp"
