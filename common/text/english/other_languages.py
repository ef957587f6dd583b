"""Whether a text is of another language: the rules here read whatever they are given as English."""

import re

# Words that are frequent there; of other languages such as are neither English nor parts of English names.
WORDS = {
    "English": """the and of to is a in it you that he was for on are with as his they at be this have from or
        had by not but what all were we when your can there an which their if will how i my me do
        she her no so""",
    "German": """ich und das ist nicht ein eine mit auf für zu wir sie du möchte haben bitte guten auch wie
        dem im sind wird""",
    "French": """je vous nous une et dans pas que qui avec mais bonjour merci très être ce cette il elle les
        sont""",
    "Spanish": """que es una por muy pero más yo qué quiero hola gracias dónde está usted los se como esta""",
    "Italian": """che di è una sono con questo buongiorno grazie vorrei della nel anche gli si non mi""",
    "Portuguese": """não que uma é com obrigado você eu muito isso está mais por os quero""",
    "Dutch": """het een niet ik en je dat voor zijn maar ook wij graag deze hebben naar""",
}
LANGUAGES = {language: frozenset(words.split()) for language, words in WORDS.items()}


def other_language(text: str) -> str:
    """The language of a text that is not English, by its frequent words; "" where it is, or may be."""
    words = [word for word in re.findall(r"[^\W\d_]+", text) if not (word.isupper() and len(word) > 1)]
    found = {one: [w for w in map(str.lower, words) if w in known] for one, known in LANGUAGES.items()}
    language = max(found, key=lambda one: len(found[one]))
    is_sure = len(set(found[language])) > 1 and 4 * len(found[language]) >= len(words)
    return language if is_sure and language != "English" else ""
