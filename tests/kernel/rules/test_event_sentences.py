"""Audit log sentences: every event kind has a sentence that always applies."""

import re

from core.kernel.event_catalog import EVENT_KINDS, PLATFORM_ACTIONS
from core.kernel.event_sentences import SENTENCES

FIELD = re.compile(r"\{([^}]*)\}")


def test_every_audited_event_has_a_sentence() -> None:
    assert SENTENCES.keys() == PLATFORM_ACTIONS.keys()
    assert {name for name, kind in EVENT_KINDS.items() if not kind.audited}.isdisjoint(SENTENCES)


def test_the_last_sentence_of_an_event_always_applies() -> None:
    for action, sentences in SENTENCES.items():
        last = sentences[-1]
        assert isinstance(last, str), action
        assert {*FIELD.findall(last)} <= {"actor", "target"}, action


def test_every_sentence_can_be_reached_and_reads_as_one() -> None:
    for action, sentences in SENTENCES.items():
        for position, sentence in enumerate(sentences):
            template = sentence if isinstance(sentence, str) else sentence[1]
            always = isinstance(sentence, str) and {*FIELD.findall(template)} <= {"actor", "target"}
            assert always is (position == len(sentences) - 1), (action, template)
            assert template[0] in "{ABCDEFGHIJKLMNOPQRSTUVWXYZ", (action, template)
            assert not template.endswith("."), (action, template)
