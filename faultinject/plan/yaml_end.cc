// SPDX-License-Identifier: Apache-2.0
#include "faultinject/plan/yaml_end.h"

#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/yaml.h>

#include <sstream>

namespace faultinject {
namespace {

/// Where a YAML document begins, and whether anything is in it.
class DocumentStart : public YAML::EventHandler {
 public:
  YAML::Mark mark;
  bool empty = true;

  void OnDocumentStart(const YAML::Mark& at) override { mark = at, empty = true; }
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark&, YAML::anchor_t) override {}
  void OnAlias(const YAML::Mark&, YAML::anchor_t) override { empty = false; }
  void OnScalar(const YAML::Mark&, const std::string&, YAML::anchor_t, const std::string&) override {
    empty = false;
  }
  void OnSequenceStart(const YAML::Mark&, const std::string&, YAML::anchor_t,
                       YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnSequenceEnd() override {}
  void OnMapStart(const YAML::Mark&, const std::string&, YAML::anchor_t, YAML::EmitterStyle::value) override {
    empty = false;
  }
  void OnMapEnd() override {}
};

}  // namespace

std::optional<YAML::Mark> end_of_first_document(const std::string& text) {
  std::istringstream stream(text);
  YAML::Parser parser(stream);
  DocumentStart document;
  if (!parser.HandleNextDocument(document)) return std::nullopt;
  for (int last = -1; parser.HandleNextDocument(document); last = document.mark.pos)
    if (!document.empty || document.mark.pos == last) return document.mark;
  return std::nullopt;
}

}  // namespace faultinject
