// What nearly every file of the tool reads; never included by name.
#include <fmt/format.h>

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "section.hpp"
#include "setting.hpp"
