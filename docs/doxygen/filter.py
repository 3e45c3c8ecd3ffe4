#!/usr/bin/env python3
"""Doxygen's input filter: turns the headers' way of writing into Doxygen's. Line numbers stay.

- "int rank = 0;  // position in the world": the comment after a member is its documentation ("///<"). Only
  members of classes, enumerators and what stands in a namespace are touched, never what is in a function.
- What a concept asks of every policy or optimizer (scope, master, update, ...) is documented at the concept;
  here each gets a line that says so.
- Explicit specialisations, friend classes, defaulted operator== and forward declarations with a comment are
  hidden: they are no names of their own.
- "<name>" in a comment is text, not a tag.

Usage: filter.py HEADER (prints it) | filter.py --self-test
"""
import re
import sys

SCOPE = re.compile(r"^(?:(?:public|protected|private):\s*)?(?:template .*)?\b(?:namespace|struct|class|enum)\b")
TRAILING = re.compile(r"^(?P<code>\s*[^/\s].*?)\s*(?<![/:])//(?![/!])\s?(?P<text>.*)$")
CONTINUED = re.compile(r"^(?P<indent>\s*)//(?![/!])\s?(?P<text>.*)$")

TAG = re.compile(r"(`[^`]*`)|(?<!\\)<(?=/?[A-Za-z])")
SEVERAL = re.compile(r"^(?P<indent>\s*)(?P<type>[\w:<>]+) (?P<names>\w+(?:, \w+)+);$")
UNNAMED = re.compile(r"^\s*(?:FLATSHARD_INLINE )?friend (?:class |.*\boperator==\(.*= default;).*$")
FORWARD = re.compile(r"^\s*(?:class|struct|enum class) [\w:]+(?: : [\w:]+)?;\s*//.*$")
LINTER = re.compile(r"\s*// NOLINT.*$")

# Members that a concept asks for, by the headers that have them: how they are declared, what they are.
POLICIES = re.compile(r"flatshard/policy/(strategy|precision|offload)\.hpp$")
OPTIMIZERS = re.compile(r"flatshard/ops/(?!optimizer|step)\w+\.hpp$")
BY_CONCEPT = {
    POLICIES: {
        r"static constexpr ShardScope scope =": "Over whom everything is cut (StrategyPolicy).",
        r"static constexpr ParametersWhole parameters_whole =": "When a unit's parameters are whole (StrategyPolicy).",
        r"static constexpr bool gradients_sharded =": "Are gradients sharded too? (StrategyPolicy)",
        r"static constexpr bool secondary_shard =": "Does a second shard stay in the group? (StrategyPolicy)",
        r"using master =": "Element type of master weights (PrecisionPolicy).",
        r"using compute =": "Element type of compute and of gathers (PrecisionPolicy).",
        r"using reduce =": "Element type of reduced gradients (PrecisionPolicy).",
        r"using accumulate =": "Element type that micro-steps add up in (PrecisionPolicy).",
        r"using state =": "Element type of optimizer states (PrecisionPolicy).",
        r"static constexpr Rounding rounding =": "How new parameters are rounded (PrecisionPolicy).",
        r"static constexpr LossScaling loss_scaling =": "Whose rule moves the loss scale (PrecisionPolicy).",
        r"static constexpr Tier parameters =": "Where compute-dtype parameters rest (OffloadPolicy).",
        r"static constexpr Tier optimizer =": "Where masters, states and gradients rest (OffloadPolicy).",
        r"static constexpr Tier tier =": "Which it is (NamesATier).",
    },
    OPTIMIZERS: {
        r"static constexpr std::string_view name =": "For messages and checkpoints.",
        r"static constexpr std::array<std::string_view, \d+> state_names": "Of each element's states (NamesItsStates).",
        r"static void visit_hyper_parameters\(": "Calls visit(name, self.member) for each hyper-parameter.",
        r"struct Coefficients \{": "What all elements of an update share (FormsCoefficients).",
        r"FLATSHARD_INLINE FLATSHARD_HOST_DEVICE Coefficients<Real> coefficients\(":
            "Of update number `time`, 1 for the first (FormsCoefficients).",
        r"FLATSHARD_INLINE FLATSHARD_HOST_DEVICE static void update\(": "Moves one element (UpdatesAnElement).",
    },
}


def code_of(line):
    """The line without strings and comments, for counting braces."""
    if line.lstrip().startswith("#"):
        return ""
    line = re.sub(r'"(?:\\.|[^"\\])*"' + r"|'(?:\\.|[^'\\])'", "", line)
    return line.split("//", 1)[0]


class Scopes:
    """Which braces are open: True for a namespace, class or enum, False for all else."""

    def __init__(self):
        self.open, self.head = [], ""

    def declares(self):
        return all(self.open)

    def read(self, code):
        for sign in code:
            if sign == "{":
                self.open.append(bool(SCOPE.search(self.head.strip())) and "(" not in self.head)
                self.head = ""
            elif sign == "}":
                if self.open:
                    self.open.pop()
                self.head = ""
            elif sign == ";":
                self.head = ""
            else:
                self.head += sign
        self.head += " "


def by_concept(path, lines, number):
    """What a concept says of the member that begins on this line; None if it says nothing."""
    declaration = lines[number].strip()
    if declaration.startswith("template <") and number + 1 < len(lines):
        declaration = lines[number + 1].strip()
    elif number > 0 and lines[number - 1].strip().startswith("template <"):
        return None
    members = next((members for paths, members in BY_CONCEPT.items() if paths.search(path)), {})
    return next((text for pattern, text in members.items() if re.match(pattern, declaration)), None)


def is_specialisation(lines, number):
    """Does a one-line declaration of an explicit specialisation begin here?"""
    return lines[number].strip() == "template <>" and lines[number + 1].endswith(";")


def before(line, text):
    return re.sub(r"^(\s*)", lambda indent: f"{indent[0]}/** {text} */ ", line)


def separately(several, text):
    """Each of several members of one declaration with the comment."""
    members = [f"/** {text} */ {several['type']} {name};" for name in several["names"].split(", ")]
    return several["indent"] + " ".join(members)


def filtered(text, path=""):
    scopes, column, lines, result = Scopes(), None, text.split("\n"), []
    for number, line in enumerate(lines):
        line = LINTER.sub("", FORWARD.sub("", UNNAMED.sub("", line)))
        comment = line.find("//")
        if comment >= 0:
            line = line[:comment] + TAG.sub(lambda tag: tag[1] or r"\<", line[comment:])
        code = code_of(line)
        declares = scopes.declares()
        scopes.read(code)
        trailing, continued = TRAILING.match(line), CONTINUED.match(line)
        opens = code.rstrip().endswith(("{", ":"))
        documented = number > 0 and lines[number - 1].lstrip().startswith("///")
        follows, precedes = (is_specialisation(lines, begin) for begin in (number - 1, number))
        concept = by_concept(path, lines, number) if declares or scopes.declares() else None
        if precedes:
            result.append(r"/// \cond")
        elif follows:
            result.append(line + r" /** \endcond */")
        elif concept and not documented:
            result.append(before(line, concept))
        elif declares and trailing and SEVERAL.match(trailing["code"]):
            result.append(separately(SEVERAL.match(trailing["code"]), trailing["text"]))
        elif declares and trailing and not opens and code.strip() not in ("}", "};", ""):
            result.append(f"{trailing['code']}  ///< {trailing['text']}")
            column = line.index("//", len(trailing["code"]))
            continue
        elif column is not None and continued and len(continued["indent"]) == column:
            result.append(" " * column + f"///< {continued['text']}")
            continue
        else:
            result.append(line)
        column = None
    return "\n".join(result)


EXAMPLE = """#include <a>
class Later;  // defined elsewhere
namespace a {  // not this
/// A struct.
struct Point {
  int x = 0;  // first <one>
  int y = 0;  // second,
              // at length
  std::string url = "http://x";
  int z() const { return x; }  // third
  Point(int);  // NOLINT: implicit
  friend bool operator==(const Point&, const Point&) = default;
  void f() {
    int local = 0;  // not this
  }
  double a, b;  // both
  /// Of <name>.
  static constexpr bool gradients_sharded = true;
  static constexpr bool secondary_shard = true;
};
template <>
int f<int>();
class D {
 public:
  struct Where {
    int at;  // where
  };
};
enum class E {
  One,  // 1
  Two   // 2
};
}  // namespace a
"""
EXPECTED = """#include <a>

namespace a {  // not this
/// A struct.
struct Point {
  int x = 0;  ///< first \\<one>
  int y = 0;  ///< second,
              ///< at length
  std::string url = "http://x";
  int z() const { return x; }  ///< third
  Point(int);

  void f() {
    int local = 0;  // not this
  }
  /** both */ double a; /** both */ double b;
  /// Of \\<name>.
  static constexpr bool gradients_sharded = true;
  /** Does a second shard stay in the group? (StrategyPolicy) */ static constexpr bool secondary_shard = true;
};
/// \\cond
int f<int>(); /** \\endcond */
class D {
 public:
  struct Where {
    int at;  ///< where
  };
};
enum class E {
  One,  ///< 1
  Two  ///< 2
};
}  // namespace a
"""


def self_test():
    found = filtered(EXAMPLE, "flatshard/policy/strategy.hpp")
    print("self-test holds" if found == EXPECTED else f"self-test: wrong:\n{found}")
    return found != EXPECTED


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    if sys.argv[1] == "--self-test":
        return self_test()
    with open(sys.argv[1], encoding="utf-8") as header:
        sys.stdout.write(filtered(header.read(), sys.argv[1]))
    return False


if __name__ == "__main__":
    sys.exit(main())
