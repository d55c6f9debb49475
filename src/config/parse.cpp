// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/assert.hpp"
#include "config/keys.hpp"
#include "config/suggest.hpp"
#include "orbite/config.hpp"

namespace orbite::config {
namespace {

constexpr std::size_t kShownKeyBytesMax = 48;
constexpr std::size_t kShownValueBytesMax = 40;
constexpr std::size_t kShownReasonBytesMax = 160;

struct Null {};
struct Object {};
struct Array {};
/// A number that is no integer of 64 bits, as it is spelled.
struct OtherNumber {
  std::string_view spelling;
};
using Value = std::variant<Null, bool, std::uint64_t, std::int64_t, OtherNumber, std::string_view,
                           Object, Array>;

std::string shown_key(std::string_view name) {
  return name.empty() ? "\"\"" : printable(name, kShownKeyBytesMax);
}

std::string in_quotes(std::string_view text) {
  return '"' + printable(text, kShownValueBytesMax) + '"';
}

// Bytes are counted, from 1; `offset` may be the end of the document.
std::string place_of(std::string_view document, std::size_t offset) {
  const std::string_view before = document.substr(0, offset);
  const auto line = 1 + std::count(before.begin(), before.end(), '\n');
  const std::size_t newline = before.rfind('\n');
  const std::size_t column =
      newline == std::string_view::npos ? before.size() + 1 : before.size() - newline;
  return "line " + std::to_string(line) + ", column " + std::to_string(column);
}

/// What follows the first `mark`; all of `text` where there is none.
std::string_view after(std::string_view text, std::string_view mark) {
  const std::size_t found = text.find(mark);
  return found == std::string_view::npos ? text : text.substr(found + mark.size());
}

bool is_spelled_as_integer(std::string_view spelling) {
  return spelling.find_first_of(".eE") == std::string_view::npos;
}

std::string describe(const Value& value) {
  struct Visitor {
    std::string operator()(Null) const { return "null"; }
    std::string operator()(bool value) const { return value ? "true" : "false"; }
    std::string operator()(std::uint64_t value) const { return std::to_string(value); }
    std::string operator()(std::int64_t value) const { return std::to_string(value); }
    std::string operator()(OtherNumber value) const {
      return printable(value.spelling, kShownValueBytesMax);
    }
    std::string operator()(std::string_view value) const {
      return "the string " + in_quotes(value);
    }
    std::string operator()(Object) const { return "an object"; }
    std::string operator()(Array) const { return "an array"; }
  };
  return std::visit(Visitor{}, value);
}

std::string range_of(const KeySpec& spec) {
  std::string text = std::to_string(spec.minimum) + ".." + std::to_string(spec.maximum);
  if (!spec.unit.empty()) {
    text += ' ';
    text += spec.unit;
  }
  return text;
}

std::string wanted(const KeySpec& spec, const Field& field) {
  struct Visitor {
    const KeySpec& spec;
    std::string operator()(bool*) const { return "true or false"; }
    std::string operator()(std::uint16_t*) const { return "an integer, " + range_of(spec); }
    std::string operator()(std::uint64_t*) const { return "an integer, " + range_of(spec); }
    std::string operator()(std::string*) const { return "a string: " + std::string(spec.allowed); }
    std::string operator()(StringList*) const {
      return "an array of " + range_of(spec) + " strings: " + std::string(spec.allowed);
    }
  };
  return std::visit(Visitor{spec}, field);
}

/// Finds the first place where a document is not JSON. Runs before anything is bound: the parser
/// reports a value before it has seen what follows it, so 065536 would first be a 0.
class SyntaxCheck final : public nlohmann::json_sax<nlohmann::json> {
 public:
  explicit SyntaxCheck(std::string_view document) : document_(document) {}

  bool null() override { return true; }
  bool boolean(bool) override { return true; }
  bool number_integer(number_integer_t) override { return true; }
  bool number_unsigned(number_unsigned_t) override { return true; }
  bool number_float(number_float_t, const string_t&) override { return true; }
  bool string(string_t&) override { return true; }
  bool binary(binary_t&) override { return true; }
  bool start_object(std::size_t) override { return true; }
  bool key(string_t&) override { return true; }
  bool end_object() override { return true; }
  bool start_array(std::size_t) override { return true; }
  bool end_array() override { return true; }
  bool parse_error(std::size_t position, const std::string& last_token,
                   const nlohmann::json::exception& exception) override;

  [[nodiscard]] Error error() const { return error_; }

 private:
  std::string_view document_;
  Error error_{ErrorCode::kBadConfig};
};

bool SyntaxCheck::parse_error(std::size_t position, const std::string&,
                              const nlohmann::json::exception& exception) {
  // "[json.exception.NAME.ID] parse error at line L, column C: REASON", or without the middle part.
  std::string_view reason = after(exception.what(), "] ");
  if (reason.starts_with("parse error at ")) {
    reason = after(reason, ": ");
  }
  // `position` counts the bytes that were read, the one at fault included.
  const std::string place = place_of(document_, position == 0 ? 0 : position - 1);
  error_ = Error::make(ErrorCode::kBadConfig, "%s: not JSON: %s", place.c_str(),
                       printable(reason, kShownReasonBytesMax).c_str());
  return false;
}

/// Binds the events of one valid document to a Config. What does not fit is an error, and is passed
/// over with all that it holds; the rest is looked at all the same. No value but a list holds
/// others, and a list holds only strings, so nesting that is looked at ends at three levels
/// whatever the document does. Keeps nothing of the document that was not accepted.
class Binder final : public nlohmann::json_sax<nlohmann::json> {
 public:
  bool null() override { return accept(Null{}); }
  bool boolean(bool value) override { return accept(value); }
  bool number_integer(number_integer_t value) override {
    // "-0" arrives here too.
    return value < 0 ? accept(value) : accept(static_cast<std::uint64_t>(value));
  }
  bool number_unsigned(number_unsigned_t value) override { return accept(value); }
  bool number_float(number_float_t, const string_t& spelling) override {
    return accept(OtherNumber{spelling});
  }
  bool string(string_t& value) override { return accept(std::string_view(value)); }
  bool binary(binary_t&) override { return accept(Null{}); }

  bool start_object(std::size_t) override;
  bool key(string_t& name) override;
  bool end_object() override;
  bool start_array(std::size_t) override;
  bool end_array() override;
  bool parse_error(std::size_t, const std::string&, const nlohmann::json::exception&) override {
    return refuse("document", "not JSON");
  }

  /// After a complete document: the rules that concern more than one key, as far as these are good.
  void check_relations();

  /// Complete when there are no errors.
  [[nodiscard]] Config take_config() { return std::move(config_); }
  [[nodiscard]] std::vector<Error> take_errors() { return std::move(errors_); }

 private:
  enum class Level { kDocument, kSections, kKeys, kList, kDone };

  /// False when no more errors are wanted.
  bool refuse(const std::string& path, const std::string& problem);
  bool refuse_key(const std::string& path, const std::string& problem);
  bool begin_container(bool fits, const Value& value);
  [[nodiscard]] bool is_good(std::string_view path) const;
  bool refuse_type(const Value& value);
  bool accept(const Value& value);
  bool is_extra_entry();
  bool accept_entry(const Value& value);
  bool store(const Value& value, bool& target);
  bool store(const Value& value, std::uint16_t& target);
  bool store(const Value& value, std::uint64_t& target);
  bool store(const Value& value, std::string& target);
  bool store(const Value& value, StringList&) { return refuse_type(value); }
  bool enter_section(std::string_view name);
  bool enter_key(std::string_view name);
  [[nodiscard]] std::string path() const;

  Config config_;
  std::vector<Error> errors_;
  std::vector<const KeySpec*> bad_keys_;
  std::size_t skip_depth_ = 0;  ///< containers open inside a value that was refused
  bool skip_next_ = false;      ///< the next value belongs to a key that was refused
  Level level_ = Level::kDocument;
  // Names of the table, not of the document, so there is at most one of each.
  std::vector<std::string_view> sections_seen_;
  std::vector<const KeySpec*> keys_seen_;
  std::string_view section_;
  const KeySpec* spec_ = nullptr;
  StringList list_;
  std::size_t list_entries_ = 0;  ///< good or bad
};

std::string Binder::path() const {
  switch (level_) {
    case Level::kDocument:
    case Level::kDone:
      return "document";
    case Level::kSections:
      return std::string(section_);
    case Level::kKeys:
      return std::string(spec_->path);
    case Level::kList:
      return std::string(spec_->path) + '[' + std::to_string(list_entries_) + ']';
  }
  return "document";
}

bool Binder::refuse(const std::string& path, const std::string& problem) {
  if (errors_.size() == kConfigErrorsMax) {
    return false;
  }
  errors_.push_back(Error::make(ErrorCode::kBadConfig, "%s: %s", path.c_str(), problem.c_str()));
  if (level_ == Level::kKeys || level_ == Level::kList) {
    bad_keys_.push_back(spec_);
  }
  return errors_.size() < kConfigErrorsMax;
}

/// With its value, whatever that is.
bool Binder::refuse_key(const std::string& path, const std::string& problem) {
  skip_next_ = true;
  return refuse(path, problem);
}

bool Binder::is_good(std::string_view path) const {
  return std::find(bad_keys_.begin(), bad_keys_.end(), find_key(path)) == bad_keys_.end();
}

bool Binder::refuse_type(const Value& value) {
  std::string allowed;
  switch (level_) {
    case Level::kDocument:
    case Level::kDone:
    case Level::kSections:
      allowed = "an object";
      break;
    case Level::kKeys:
      ORBITE_CHECK(spec_ != nullptr);  // the value of an unknown key is passed over
      allowed = wanted(*spec_, spec_->field(config_));
      break;
    case Level::kList:
      allowed = "a string: " + std::string(spec_->allowed);
      break;
  }
  return refuse(path(), "is " + describe(value) + ", must be " + allowed);
}

bool Binder::accept(const Value& value) {
  if (skip_depth_ > 0 || std::exchange(skip_next_, false)) {
    return true;
  }
  switch (level_) {
    case Level::kDocument:
    case Level::kSections:
    case Level::kDone:
      return refuse_type(value);
    case Level::kKeys:
      return std::visit([&](auto* target) { return store(value, *target); }, spec_->field(config_));
    case Level::kList:
      return accept_entry(value);
  }
  return refuse_type(value);
}

/// True for an entry beyond the most that are allowed; the first of them is an error.
bool Binder::is_extra_entry() {
  if (list_entries_ == spec_->maximum) {
    refuse(std::string(spec_->path), "too many entries, allowed " + range_of(*spec_) + " of them");
  }
  return list_entries_ >= spec_->maximum;
}

bool Binder::accept_entry(const Value& value) {
  if (!is_extra_entry()) {
    const std::size_t errors_before = errors_.size();
    std::string entry;
    store(value, entry);
    if (errors_.size() == errors_before) {
      if (std::find(list_.begin(), list_.end(), entry) != list_.end()) {
        refuse(path(), in_quotes(entry) + " is there twice, allowed once");
      } else {
        list_.push_back(std::move(entry));
      }
    }
  }
  ++list_entries_;
  return errors_.size() < kConfigErrorsMax;
}

bool Binder::store(const Value& value, bool& target) {
  const bool* flag = std::get_if<bool>(&value);
  if (flag == nullptr) {
    return refuse_type(value);
  }
  target = *flag;
  return true;
}

bool Binder::store(const Value& value, std::uint64_t& target) {
  const auto* other = std::get_if<OtherNumber>(&value);
  const bool is_integer = std::holds_alternative<std::uint64_t>(value) ||
                          std::holds_alternative<std::int64_t>(value) ||
                          (other != nullptr && is_spelled_as_integer(other->spelling));
  if (!is_integer) {
    return refuse_type(value);
  }
  const auto* number = std::get_if<std::uint64_t>(&value);
  if (number == nullptr || *number < spec_->minimum || *number > spec_->maximum) {
    return refuse(path(), describe(value) + " is out of range, allowed " + range_of(*spec_));
  }
  target = *number;
  return true;
}

bool Binder::store(const Value& value, std::uint16_t& target) {
  std::uint64_t number = target;
  const bool go_on = store(value, number);
  ORBITE_CHECK(number <= std::numeric_limits<std::uint16_t>::max());
  target = static_cast<std::uint16_t>(number);
  return go_on;
}

bool Binder::store(const Value& value, std::string& target) {
  const auto* text = std::get_if<std::string_view>(&value);
  if (text == nullptr) {
    return refuse_type(value);
  }
  if (!spec_->accepts(*text)) {
    return refuse(path(),
                  in_quotes(*text) + " is not allowed, allowed: " + std::string(spec_->allowed));
  }
  target = *text;
  return true;
}

/// False when the value is passed over or refused, with all that is in it.
bool Binder::begin_container(bool fits, const Value& value) {
  if (skip_depth_ > 0 || std::exchange(skip_next_, false)) {
    ++skip_depth_;
    return false;
  }
  if (fits) {
    return true;
  }
  if (level_ != Level::kList) {
    refuse_type(value);
  } else {
    if (!is_extra_entry()) {
      refuse_type(value);
    }
    ++list_entries_;
  }
  skip_depth_ = 1;
  return false;
}

bool Binder::start_object(std::size_t) {
  if (begin_container(level_ == Level::kDocument || level_ == Level::kSections, Object{})) {
    level_ = level_ == Level::kDocument ? Level::kSections : Level::kKeys;
  }
  return errors_.size() < kConfigErrorsMax;
}

bool Binder::key(string_t& name) {
  if (skip_depth_ > 0) {
    return true;
  }
  return level_ == Level::kSections ? enter_section(name) : enter_key(name);
}

bool Binder::enter_section(std::string_view name) {
  const std::vector<std::string_view> sections = section_names();
  const auto found = std::find(sections.begin(), sections.end(), name);
  if (found == sections.end()) {
    return refuse_key(shown_key(name), "unknown key; " + advice_for_unknown_key("", name));
  }
  section_ = *found;
  if (std::find(sections_seen_.begin(), sections_seen_.end(), section_) != sections_seen_.end()) {
    return refuse_key(path(), "duplicate key, allowed once");
  }
  sections_seen_.push_back(section_);
  return true;
}

bool Binder::enter_key(std::string_view name) {
  const std::span<const KeySpec> specs = key_specs();
  const auto found = std::find_if(specs.begin(), specs.end(), [&](const KeySpec& spec) {
    return spec.section() == section_ && spec.name() == name;
  });
  if (found == specs.end()) {
    spec_ = nullptr;
    return refuse_key(std::string(section_) + '.' + shown_key(name),
                      "unknown key; " + advice_for_unknown_key(section_, name));
  }
  spec_ = &*found;
  if (std::find(keys_seen_.begin(), keys_seen_.end(), spec_) != keys_seen_.end()) {
    return refuse_key(path(), "duplicate key, allowed once");
  }
  keys_seen_.push_back(spec_);
  return true;
}

bool Binder::end_object() {
  if (skip_depth_ > 0) {
    --skip_depth_;
    return true;
  }
  level_ = level_ == Level::kKeys ? Level::kSections : Level::kDone;
  return true;
}

bool Binder::start_array(std::size_t) {
  // Behind a key that was refused there is no spec, and nothing to fit it.
  const bool fits = level_ == Level::kKeys && spec_ != nullptr &&
                    std::holds_alternative<StringList*>(spec_->field(config_));
  if (begin_container(fits, Array{})) {
    level_ = Level::kList;
    list_.clear();
    list_entries_ = 0;
  }
  return errors_.size() < kConfigErrorsMax;
}

bool Binder::end_array() {
  if (skip_depth_ > 0) {
    --skip_depth_;
    return true;
  }
  level_ = Level::kKeys;
  if (list_entries_ < spec_->minimum) {
    return refuse(path(), "too few entries, allowed " + range_of(*spec_) + " of them");
  }
  *std::get<StringList*>(spec_->field(config_)) = std::move(list_);
  return true;
}

void Binder::check_relations() {
  const std::uint64_t port = config_.listen.port;
  const std::uint64_t port_max = config_.listen.port_max;
  if (is_good("listen.port") && is_good("listen.port_max") && port_max != 0 &&
      (port == 0 || port_max < port)) {
    refuse("listen.port_max",
           std::to_string(port_max) +
               (port == 0 ? " without listen.port, allowed 0, or set listen.port too"
                          : " is out of range, allowed 0 or " + std::to_string(port) +
                                "..65535, as listen.port is " + std::to_string(port)));
  }
  for (const Containment& containment : containments()) {
    const std::uint64_t part = integer_value(*find_key(containment.part), config_);
    const std::uint64_t whole = integer_value(*find_key(containment.whole), config_);
    if (is_good(containment.part) && is_good(containment.whole) && part > whole) {
      refuse(std::string(containment.part), std::to_string(part) + " is more than " +
                                                std::string(containment.whole) +
                                                ", allowed at most " + std::to_string(whole));
    }
  }
}

struct Parsed {
  Config config;
  std::vector<Error> errors;
};

Parsed parse(std::string_view json) {
  if (json.size() > kConfigBytesMax) {
    return {{},
            {Error::make(ErrorCode::kBadConfig, "document: %zu bytes are too many, allowed %zu",
                         json.size(), kConfigBytesMax)}};
  }
  // The parser would take a NUL for the end of the text and not look at what follows.
  if (const std::size_t nul = json.find('\0'); nul != std::string_view::npos) {
    return {{},
            {Error::make(ErrorCode::kBadConfig, "%s: not JSON: a NUL byte",
                         place_of(json, nul).c_str())}};
  }
  SyntaxCheck syntax(json);
  if (!nlohmann::json::sax_parse(json.begin(), json.end(), &syntax)) {
    return {{}, {syntax.error()}};
  }
  Binder binder;
  if (nlohmann::json::sax_parse(json.begin(), json.end(), &binder)) {
    binder.check_relations();
  }
  return {binder.take_config(), binder.take_errors()};
}

}  // namespace
}  // namespace orbite::config

namespace orbite {

Result<Config> parse_config(std::string_view json) {
  config::Parsed parsed = config::parse(json);
  if (!parsed.errors.empty()) {
    return fail(parsed.errors.front());
  }
  return std::move(parsed.config);
}

std::vector<Error> config_errors(std::string_view json) { return config::parse(json).errors; }

}  // namespace orbite
