// SPDX-License-Identifier: Apache-2.0
// The `orbite` command.

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "base/log.hpp"
#include "bench/arguments.hpp"
#include "commands.hpp"
#include "platform/system.hpp"

namespace orbite::tool {

int write_output(const std::string& text) {
  const bool written = std::fwrite(text.data(), 1, text.size(), stdout) == text.size();
  if (!written || std::fflush(stdout) != 0) {
    write_error("standard output cannot be written");
    return kExitFailed;
  }
  return kExitOk;
}

void write_error(const std::string& text) { std::fprintf(stderr, "orbite: %s\n", text.c_str()); }

namespace {

struct Arguments {
  bool json = false;
  bool markdown = false;
  bool schema = false;
  std::optional<std::string> config_file;
  std::string checked_file;
  SimArguments sim;
  bench::Arguments bench;
  std::string faults = "all";
  std::string neighbors = "drawn";
};

/// As it is typed: `orbite config`.
std::string full_name(const CLI::App& app) {
  const CLI::App* parent = app.get_parent();
  return parent == nullptr ? app.get_name() : full_name(*parent) + ' ' + app.get_name();
}

std::string names_of_commands(const CLI::App& app) {
  std::string names;
  for (const CLI::App* command : app.get_subcommands({})) {
    names += names.empty() ? "" : ", ";
    names += command->get_name();
  }
  return names;
}

/// The command that was chosen below `app`; when there is none, says which there are.
const CLI::App* chosen_command(const CLI::App& app) {
  const std::vector<CLI::App*> chosen = app.get_subcommands();
  if (!chosen.empty()) {
    return chosen.front();
  }
  const std::vector<std::string> rest = app.remaining();
  const std::string problem = rest.empty() ? "a command is missing"
                              : rest.front().starts_with('-')
                                  ? "unknown option '" + rest.front() + "'"
                                  : "unknown command '" + rest.front() + "'";
  const std::string name = full_name(app);
  write_error(problem + "; commands of " + name + ": " + names_of_commands(app) + " (see " + name +
              " --help)");
  return nullptr;
}

CLI::App* add_sim(CLI::App& app, Arguments& arguments) {
  SimArguments& sim = arguments.sim;
  CLI::App* command = app.add_subcommand(
      "sim",
      "Run engines in a simulated world and check that they never lie; exits with 1 and the "
      "failing seed when one does");
  command->add_option("--seeds", sim.seeds, "How many seeds")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'000'000'000'000}))
      ->capture_default_str();
  command->add_option("--seed", sim.seed, "The first seed")->capture_default_str();
  command->add_option("--ops", sim.options.ops, "Steps of the applications in each world")
      ->check(CLI::Range(std::uint32_t{1}, std::uint32_t{1'000'000}))
      ->capture_default_str();
  command->add_option("--hosts", sim.options.hosts, "Hosts in each world; default: drawn")
      ->check(CLI::Range(sim::kHostsMin, sim::kHostsMax));
  command
      ->add_option("--machines", sim.options.machines,
                   "Machines that the hosts share; default: drawn")
      ->check(CLI::Range(std::uint32_t{1}, sim::kHostsMax));
  command
      ->add_option("--neighbors", arguments.neighbors,
                   "Hosts of a shared machine that can reach each other's memory")
      ->check(CLI::IsMember(
          std::vector<std::string>(sim::kNeighborsUses.begin(), sim::kNeighborsUses.end())))
      ->type_name("USE")
      ->capture_default_str();
  command->add_option("--jobs", sim.jobs, "Processes that share the seeds")
      ->check(CLI::Range(std::uint64_t{1}, std::uint64_t{1'024}))
      ->capture_default_str();
  command
      ->add_option(
          "--faults", arguments.faults,
          "none, network, process, all, or names of faults: " + sim::fault_names(sim::kAllFaults))
      ->type_name("PROFILE")
      ->capture_default_str();
  command->add_flag("--json", sim.json, "Write JSON");
  command->add_flag("--log", sim.log, "Run the first seed alone and write every event of it");
  return command;
}

int start_sim(Arguments& arguments) {
  const Result<sim::FaultSet> faults = sim::parse_faults(arguments.faults);
  if (!faults) {
    write_error(faults.error().message());
    return kExitUsage;
  }
  arguments.sim.options.faults = *faults;
  const auto* const use =
      std::find(sim::kNeighborsUses.begin(), sim::kNeighborsUses.end(), arguments.neighbors);
  arguments.sim.options.neighbors =
      static_cast<sim::NeighborsUse>(use - sim::kNeighborsUses.begin());
  return run_sim(arguments.sim);
}

struct ConfigCommands {
  CLI::App* check;
  CLI::App* defaults;
};

ConfigCommands add_config_commands(CLI::App& config, Arguments& arguments) {
  CLI::App* check = config.add_subcommand(
      "check", "Write ok and exit with 0, or name all that is wrong and exit with 1");
  check->add_option("file", arguments.checked_file, "Configuration file; - is standard input")
      ->type_name("FILE")
      ->required();
  CLI::App* defaults =
      config.add_subcommand("defaults", "Every key with its default, type, range and meaning");
  CLI::Option* json =
      defaults->add_flag("--json", arguments.json, "Write the document of all defaults");
  CLI::Option* schema =
      defaults->add_flag("--schema", arguments.schema, "Write the keys as JSON")->excludes(json);
  defaults->add_flag("--markdown", arguments.markdown, "Write a page of Markdown")
      ->excludes(json)
      ->excludes(schema);
  return {check, defaults};
}

/// ORBITE_LOG, as the library reads it. False, with a message, for what is no level.
bool apply_log_level() {
  const std::optional<std::string> text = platform::environment_log_level();
  if (!text.has_value() || text->empty()) {
    return true;
  }
  base::LogLevel level{};
  if (!base::parse_log_level(*text, level)) {
    write_error("ORBITE_LOG is '" + *text + "'; allowed: trace, debug, info, warn, error, off");
    return false;
  }
  base::set_log_level(level);
  return true;
}

int run(int argc, char** argv) {
  Arguments arguments;
  CLI::App app("OrbiTE, a transfer engine and NIXL backend", "orbite");
  app.set_version_flag("--version", std::string("orbite ") + ORBITE_VERSION);
  app.allow_extras();

  CLI::App* info = app.add_subcommand("info", "Version, transports and addresses of an engine");
  info->add_flag("--json", arguments.json, "Write JSON");
  info->add_option("--config", arguments.config_file,
                   "Configuration file; default: the file that ORBITE_CONFIG names, or none")
      ->type_name("FILE");

  CLI::App* config = app.add_subcommand("config", "Check a configuration, or list every key");
  config->allow_extras();
  const ConfigCommands of_config = add_config_commands(*config, arguments);

  CLI::App* telemetry = app.add_subcommand(
      "telemetry", "Every metric, as an engine that has done nothing shows it to Prometheus");
  telemetry->add_flag("--markdown", arguments.markdown, "Write a page of Markdown");

  const CLI::App* sim = add_sim(app, arguments);
  CLI::App* bench = bench::add_command(app, arguments.bench);

  for (CLI::App* command :
       {info, of_config.check, of_config.defaults, telemetry, app.get_subcommand("sim"), bench}) {
    command->allow_extras(false);
  }
  try {
    app.parse(argc, argv);
  } catch (const CLI::Success& success) {
    // --help and --version.
    return app.exit(success) == 0 ? write_output("") : kExitFailed;
  } catch (const CLI::ParseError& error) {
    write_error(std::string(error.what()) + " (see --help)");
    return kExitUsage;
  }

  const CLI::App* command = chosen_command(app);
  if (command == config) {
    command = chosen_command(*config);
  }
  const Format format = arguments.json       ? Format::kJson
                        : arguments.schema   ? Format::kSchema
                        : arguments.markdown ? Format::kMarkdown
                                             : Format::kText;
  if (command == sim) {
    return start_sim(arguments);
  }
  if (command == bench) {
    return run_bench(arguments.bench);
  }
  if (command == info) {
    return run_info(arguments.config_file, format);
  }
  if (command == of_config.check) {
    return run_config_check(arguments.checked_file);
  }
  if (command == of_config.defaults) {
    return run_config_defaults(format);
  }
  if (command == telemetry) {
    return run_telemetry(format);
  }
  return kExitUsage;
}

}  // namespace
}  // namespace orbite::tool

int main(int argc, char** argv) {
  try {
    return orbite::tool::apply_log_level() ? orbite::tool::run(argc, argv)
                                           : orbite::tool::kExitUsage;
  } catch (const std::exception& exception) {
    orbite::tool::write_error(exception.what());
    return orbite::tool::kExitFailed;
  }
}
