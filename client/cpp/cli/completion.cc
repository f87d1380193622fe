#include "client/cpp/cli/completion.h"

#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "client/cpp/cli/commands.h"
#include "client/cpp/client_error.h"

namespace attendant::client::cli {
namespace {

bool IsSwitch(const FlagSpec& spec) { return std::strlen(spec.value) == 0; }

// "a|b|c" -> "a b c"; "" for a free value.
std::string ChoicesOf(const FlagSpec& spec) {
  const std::string value = spec.value;
  if (value.find('|') == std::string::npos) return "";
  return absl::StrReplaceAll(value, {{"|", " "}});
}

bool IsFile(const FlagSpec& spec) {
  return std::strstr(spec.value, "FILE") != nullptr;
}

std::string FirstLine(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Words that a command takes instead of files: "bash|zsh".
std::string ArgumentChoices(const Command& command) {
  return command.arguments.find('|') == std::string::npos
             ? ""
             : absl::StrReplaceAll(command.arguments, {{"|", " "}});
}

bool TakesFiles(const Command& command) {
  return command.arguments.find("FILE") != std::string::npos;
}

std::string BashCase(const Command& command) {
  std::string words = ArgumentChoices(command), values;
  for (const FlagSpec& spec : command.flags) {
    absl::StrAppend(&words, words.empty() ? "" : " ", "--", spec.name,
                    IsSwitch(spec) ? "" : "=");
    const std::string choices = ChoicesOf(spec);
    if (!choices.empty()) {
      absl::StrAppend(&values, "        --", spec.name, ") choices='", choices,
                      "' ;;\n");
    } else if (IsFile(spec)) {
      absl::StrAppend(&values, "        --", spec.name, ") files=1 ;;\n");
    } else if (!IsSwitch(spec)) {
      absl::StrAppend(&values, "        --", spec.name, ") free=1 ;;\n");
    }
  }
  return absl::StrCat("    ", command.name, ")\n      words='", words, "'\n",
                      TakesFiles(command) ? "      takes_files=1\n" : "",
                      values.empty() ? ""
                                     : absl::StrCat("      case \"$flag\" in\n",
                                                    values, "      esac\n"),
                      "      ;;\n");
}

// Bash splits words at "=": "--door=un" comes as "--door", "=", "un".
constexpr char kBashHead[] = R"(# bash completion of attendant:
#   source <(attendant completion bash)
_attendant() {
  local current=${COMP_WORDS[COMP_CWORD]} flag='' words='' choices=''
  local files='' free='' takes_files='' before=''
  [ "$COMP_CWORD" -gt 0 ] && before=${COMP_WORDS[COMP_CWORD-1]}
  COMPREPLY=()
  if [ "$COMP_CWORD" -eq 1 ]; then
    COMPREPLY=($(compgen -W "$commands" -- "$current"))
    return
  fi
  if [ "$current" = '=' ]; then
    flag=$before current=''
  elif [ "$before" = '=' ]; then
    flag=${COMP_WORDS[COMP_CWORD-2]}
  else
    case "$current" in --*) ;; *) flag=$before ;; esac
  fi
  case "${COMP_WORDS[1]}" in
)";

constexpr char kBashTail[] = R"(  esac
  if [ -n "$choices" ]; then
    COMPREPLY=($(compgen -W "$choices" -- "$current"))
  elif [ -n "$files" ]; then
    COMPREPLY=($(compgen -f -- "$current"))
  elif [ -n "$free" ]; then
    return
  else
    COMPREPLY=($(compgen -W "$words" -- "$current"))
    if [ -n "$takes_files" ]; then
      case "$current" in
        -*) ;;
        *) COMPREPLY+=($(compgen -f -- "$current")) ;;
      esac
    fi
    case "${COMPREPLY[0]:-}" in *=) compopt -o nospace 2>/dev/null ;; esac
  fi
}
complete -F _attendant attendant
)";

// Inside '...' of zsh's _arguments: brackets, colons and quotes are its own.
std::string ZshText(const std::string& text) {
  return absl::StrReplaceAll(text,
                             {{"'", ""}, {"[", "("}, {"]", ")"}, {":", "\\:"}});
}

std::string ZshFlag(const FlagSpec& spec) {
  std::string line =
      absl::StrCat("        '--", spec.name, IsSwitch(spec) ? "" : "=", "[",
                   ZshText(FirstLine(spec.help)), "]");
  if (!IsSwitch(spec)) {
    absl::StrAppend(&line, ":", ZshText(spec.value), ":");
    const std::string choices = ChoicesOf(spec);
    if (!choices.empty()) absl::StrAppend(&line, "(", choices, ")");
    if (choices.empty() && IsFile(spec)) absl::StrAppend(&line, "_files");
  }
  return line + "'";
}

std::string ZshCase(const Command& command) {
  std::string text = absl::StrCat("    ", command.name, ")\n      _arguments");
  for (const FlagSpec& spec : command.flags) {
    absl::StrAppend(&text, " \\\n", ZshFlag(spec));
  }
  const std::string choices = ArgumentChoices(command);
  if (!choices.empty()) {
    absl::StrAppend(&text, " \\\n        '1:word:(", choices, ")'");
  } else if (TakesFiles(command)) {
    absl::StrAppend(&text, " \\\n        '*:file:_files'");
  }
  return text + "\n      ;;\n";
}

int RunCompletion(const Flags& flags) {
  const std::string shell =
      flags.positional().size() == 1 ? flags.positional()[0] : "";
  std::string script;
  if (shell == "bash") script = BashCompletion(Commands());
  if (shell == "zsh") script = ZshCompletion(Commands());
  if (script.empty()) {
    return Fail(InvalidField("shell", shell, "bash or zsh"), kUsage);
  }
  if (flags.Switch("json")) {
    script = nlohmann::json{{"shell", shell}, {"script", script}}.dump() + "\n";
  }
  Print(script);
  return kOk;
}

}  // namespace

std::string BashCompletion(std::span<const Command> commands) {
  std::string names = "help", cases;
  for (const Command& command : commands) {
    absl::StrAppend(&names, " ", command.name);
    cases += BashCase(command);
  }
  return absl::StrReplaceAll(kBashHead, {{"$commands", names}}) + cases +
         kBashTail;
}

std::string ZshCompletion(std::span<const Command> commands) {
  std::string names, cases;
  for (const Command& command : commands) {
    absl::StrAppend(&names, "      '", command.name, ":",
                    ZshText(command.summary), "'\n");
    cases += ZshCase(command);
  }
  return absl::StrCat(
      "#compdef attendant\n"
      "# zsh completion of attendant; in a folder of $fpath as _attendant, or\n"
      "#   source <(attendant completion zsh)\n"
      "_attendant() {\n"
      "  if (( CURRENT == 2 )); then\n"
      "    local -a commands=(\n",
      names,
      "    )\n"
      "    _describe command commands\n"
      "    return\n"
      "  fi\n"
      "  local name=$words[2]\n"
      "  shift words\n"
      "  (( CURRENT-- ))\n"
      "  case $name in\n",
      cases,
      "  esac\n"
      "}\n"
      "if [ \"$funcstack[1]\" = _attendant ]; then _attendant \"$@\"\n"
      "else compdef _attendant attendant; fi\n");
}

Command CompletionCommand() {
  constexpr FlagSpec kFlags[] = {{"json", "", "print one JSON object"},
                                 {"help", "", "show this"}};
  return {.name = "completion",
          .arguments = "bash|zsh",
          .summary = "Prints a completion script for a shell.",
          .details = "",
          .examples =
              "source <(attendant completion bash)\n"
              "attendant completion zsh > ~/.zfunc/_attendant\n",
          .flags = {std::begin(kFlags), std::end(kFlags)},
          .run = RunCompletion};
}

}  // namespace attendant::client::cli
