"""The selector language (§3.8): from text to a function, an index plan and a readable error.

    source    spans, the error with its caret, warnings          dialect    what differs between the languages
    lexer     text -> tokens                                     plan       tree -> when is it TRUE?
    parser    tokens -> tree (ast)                               facts      plan -> necessary conditions for an index
    checker   types and names that the text shows                to_python  plan -> function
    printer   tree -> text, canonical text                       evaluate   the reference: tree + message -> truth value
    hints     what to write instead, for the parser              syntax     the Python nodes that to_python needs
    advice    warnings                                           cache      compiled selectors by text
    analysis  can it be TRUE at all? possible: by which values   shape      what differs in its constants only
    explain   why a message matches or not                       portability  where other providers differ
    describe  plans and facts in words                           rewrite    what portability says to write instead

``compiled`` puts them together; arithmetic, like and names are what both ways of evaluation share.
"""

from sievemq_core.selector.compiled import CompiledSelector, cache, compile_selector, verify_selector
from sievemq_core.selector.dialect import Dialect
from sievemq_core.selector.facts import Facts, bucket_key, message_key
from sievemq_core.selector.source import SelectorError, SelectorWarning

__all__ = [
    "CompiledSelector",
    "Dialect",
    "Facts",
    "SelectorError",
    "SelectorWarning",
    "bucket_key",
    "cache",
    "compile_selector",
    "message_key",
    "verify_selector",
]
