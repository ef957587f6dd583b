"""Templates of what people say to each other, of which prose has little: questions, answers, lists, clauses.

A slot is a key of `WORDS`, or a number or date that `texts.py` writes out. `{same}` repeats the first slot.
"""

import re

_WORDS = {
    "person": (
        "my brother, your sister, the doctor, the teacher, his mother, her father, the driver, "
        "our neighbor, the captain, the lawyer, the boy, the old man, the nurse, the farmer, the judge, "
        "your uncle, the cook, the young lady, the mayor, the boss"
    ),
    "name": (
        "Mary, John, Robert, Alice, Paul, Susan, Henry, Clara, Roy, Joyce, Howard, Laura, Peter, Anna, "
        "George, Ruth, Walter, Irene, Louis, Sarah"
    ),
    "thing": (
        "letter, house, boat, coat, key, garden, picture, bottle, window, hammer, table, watch, bridge, "
        "ticket, tower, wallet, towel, basket, violin, machine, hat, road, book, oil lamp, coin, toy, "
        "crown, flower, blanket, suitcase"
    ),
    "things": (
        "apples, pears, plums, cherries, onions, carrots, eggs, candles, nails, ropes, boots, gloves, "
        "pencils, maps, books, flowers, mice, horses, cows, sheep, boys, clouds, towels, toys, coins, "
        "chairs, knives, bells, stamps, shirts"
    ),
    "food": (
        "flour, butter, sugar, milk, salt, pepper, garlic, rice, bread, cheese, honey, oil, coffee, tea, "
        "trout, soy sauce"
    ),
    "place": (
        "the station, the river, town, the market, church, the office, the mountains, the harbor, school, "
        "the farm, the old mill, the library, the airport, the park, the hospital, the lake"
    ),
    "city": (
        "Boston, Chicago, London, Paris, Madrid, Dallas, Detroit, Rome, Denver, Houston, Moscow, Vienna, "
        "Berlin, Dublin, Oslo, Cairo"
    ),
    "quality": (
        "late, cold, heavy, empty, ready, broken, lovely, strange, quiet, loud, dangerous, important, "
        "expensive, terrible, wonderful, dry, round, brown, moist, proud, careful, possible, simple, "
        "warm enough, far too long"
    ),
    "do": (
        "find, see, sell, carry, open, hide, break, bring, paint, repair, destroy, enjoy, count, leave, "
        "forget, describe, lose, wash, keep, remember"
    ),
    "did": (
        "found, saw, sold, carried, opened, hid, broke, brought, painted, repaired, destroyed, enjoyed, "
        "counted, left, forgot, described, lost, washed, kept, remembered"
    ),
    "go": (
        "walk, wait, stay, sleep, swim, work, sing, leave, laugh, rest, hurry, stop, listen, dance, shout, "
        "return, speak, read, fly, drown"
    ),
    "went": (
        "walked, waited, stayed, slept, swam, worked, sang, left, laughed, rested, hurried, stopped, "
        "listened, danced, shouted, returned, spoke, fell, frowned, bowed"
    ),
    "when": (
        "tomorrow, today, tonight, on Monday, next week, this evening, in the morning, after dinner, "
        "on Friday, in May, before noon, at midnight, this summer, on Sunday"
    ),
    "past": (
        "yesterday, last night, last week, this morning, on Tuesday, two years ago, in April, an hour ago, "
        "last winter, on Saturday"
    ),
    "how": (
        "slowly, quickly, again, alone, together, quietly, at once, all night, well, too loudly, "
        "carefully, for an hour"
    ),
    "said": "said, answered, replied, cried, whispered, shouted, added, called",
    "color": "red, white, green, yellow, blue, black, brown, gray, orange, purple",
    "language": "French, German, Polish, Greek, Spanish, Latin, Russian, English, Welsh, Dutch",
    "day": "Monday, Tuesday, Wednesday, Thursday, Friday, Saturday, Sunday",
    "interjection": "well, no, yes, oh, come, now, there, hush, please, wait, never, stop",
}
WORDS = {slot: words.split(", ") for slot, words in _WORDS.items()}

# Kinds of sentences: how many of each, all different, and their templates, with a bar between two.
_KINDS = {
    "yes/no question": (
        850,
        """
        Is the {thing} {quality}? | Was the {thing} {quality} {past}? | Are the {things} {quality}? |
        Is it {quality}? | Is {person} {quality}? | Is this your {thing}? | Is that {name}'s {thing}? |
        Are these {person}'s {things}? | Do you {do} the {thing}? | Did you {do} the {thing}? |
        Did {person} {do} the {things} {past}? | Does {person} {go}? | Does {name} {go} {how}? |
        Did {name} {go}? | Can you {do} it? | Can {person} {go} {when}? | Could you {do} my {thing}? |
        Will you {go}? | Will {person} {go} {when}? | Would you {do} the {thing} {when}? |
        Would you like some {food}? | Should we {go}? | Should we {do} the {things}? |
        Shall I {do} it {when}? | Have you got a {thing}? | Have you been to {city}? |
        Has {name} been to {place}? | Have they {did} it? | May I {go}? | May I {do} your {thing}? |
        Is there any {food}? | Are there any {things}? | Is it far to {place}? |
        Were you in {city} {past}? | Is he? | Are you? | Did she? | Can we? | Do they? |
        Isn't it {quality}? | Didn't you {do} it? | Can't {name} {go}? | Don't you like {food}? |
        Do you know who {did} the {thing}? | Are you sure? | Is it {small}? | Are there {small}? |
        Is it chapter {small}? | Do you have {small} {things}? | {name}? | The {thing}? | {when}? |
        {name} {went}? | You {did} it? | You {did} the {thing}? | It was {quality}? | In {city}? |
        {small}? | Really? | Ready? | And you? | It is {quality}, isn't it? | You {did} it, didn't you? |
        {name} can {go}, can't he?
        """,
    ),
    "question with a question word": (
        450,
        """
        Who {did} the {thing}? | Who {did} it? | Who {went} {past}? | Who is {name}? |
        Whose {thing} is it? | What is it? | What did {person} {do}? | What is in the {thing}? |
        What happened to the {things}? | Which {thing} is yours? | Which {things} did you {do}? |
        When will {name} {go}? | When did you {do} the {thing}? | Where is the {thing}? |
        Where are the {things}? | Where did {person} {go}? | Why is it {quality}? | Why did {name} {go}? |
        Why not? | Why did you {do} my {thing}? | How did {person} {do} it? |
        How many {things} are there? | How far is it to {place}? | How long did you {go}? |
        How much is the {thing}? | How old is {name}? | And why {when}? | What for? | Since when? |
        How is {person}? | Who knows? | What year is it? | What is {small} and {small}?
        """,
    ),
    "choice": (
        100,
        """
        Is it {color} or {color}? | Do you speak {language} or {language}? |
        Is the {thing} {quality} or {quality}? | Shall we {go} or {go}? | Do you want {food} or {food}? |
        Was it in {city} or in {city}? | {day} or {day}?
        """,
    ),
    "exclamation": (
        200,
        """
        What a {quality} {thing}! | How {quality} it is! | Look at the {things}! | Stop! | Help! |
        Look out! | {go}! | Don't {go}! | Don't {do} it! | Never {do} the {thing} again! | Oh, {name}! |
        The {thing} is {quality}! | Bravo! | {name}, {go} {how}! | We {did} it! | Happy birthday, {name}! |
        Hurrah for {person}! | Well done! | How {quality}!
        """,
    ),
    "dialogue": (
        400,
        """
        "The {thing} is {quality}," {said} {name}. | "I {did} it {past}," {name} {said}. |
        "{name}," {said} {person}, "{go} {how}." | "No," he {said}, "I never {did} the {thing}." |
        "Yes, {name}," she {said}. | "{go}!" {said} {person}. | He {said}, "It is {quality}." |
        She {said}, "We {did} the {things}." | He asked, "Is the {thing} {quality}?" |
        She asked me, "Did {name} {go}?" | {name} asked, "Where is the {thing}?" |
        "Why," {said} {name}, "you {did} it." | "Good morning, {name}," {said} {person}. |
        "I will {go} {when}," {name} {said}, "and you can {go} too." |
        "Well," {said} {person}, "the {things} are {quality}." | "{name} {went}," he {said}. |
        "Thank you," {said} {name}. | "Never," she {said}, and {went}. | "I know," he {said}. |
        "{small} {things}," {said} {person}.
        """,
    ),
    "list": (
        350,
        """
        {things}, {things}, and {things}. | We bought {things}, {things}, {things}, and {things}. |
        I need {food}, {food}, and {food}. | She packed a {thing}, a {thing}, and two {things}. |
        The flag is {color}, {color}, and {color}. | {name}, {name}, and {name}. |
        He speaks {language}, {language}, {language}, and {language}. | They {went}, {went}, and {went}. |
        {day}, {day}, and {day}. | It was {quality}, {quality}, and {quality}. |
        From {city} to {city}, {city}, and {city}. | {small}, {small}, {small}, and {small}. |
        Bring {food}, {food}, {things}, and {small} {things}. |
        {name}, {name}, {name}, {name}, and {name} {went}. | You can {go}, {go}, {go}, or {go}. |
        Add the {food}, the {food}, and then the {food}. | {color}, {color}, {color}, or {color}. |
        First the {thing}, then the {thing}, and at last the {thing}. |
        {person}, {person}, and {person} {went} {past}.
        """,
    ),
    "short clause": (
        700,
        """
        Yes. | No. | Of course. | Of course not. | Not yet. | Not at all. | Thank you. | Good night. |
        Very well. | I see. | All right. | At last. | Maybe. | Perhaps. | Indeed. | Certainly. | Never. |
        Always. | Chapter {small}. | Page {small}. | Part {small}. | Room {small}. | Number {small}. |
        Question {small}. | Step {small}. | {small} miles. | {small} {things}. | {time}. | {ordinal}. |
        The {ordinal} {thing}. | {name} {went}. | He {went}. | She {went}. | They {went}. |
        We {went} {how}. | He {did} it. | I {did} it. | It {went}. | It is {quality}. | It was {quality}. |
        {quality}. | Too {quality}. | Very {quality}. | The {thing}. | My {thing}. | A {quality} {thing}. |
        {name}. | {name} {said}. | She {said} no. | In {city}. | At {place}. | {when}. | {past}. | {how}. |
        {go} {how}. | Please {go}. | {do} it. | {do} the {thing}. | I can {go}. | No, {name}. |
        Yes, {person}. | {color}. | {language}. | {day}. | Some {food}. | No {things}. |
        So {went} {name}. | As you {do} it. | Not {quality}. | Not {when}. | Nobody {went}. | {person}. |
        {year}. | {date}.
        """,
    ),
    "repetition": (
        100,
        """
        {interjection}, {same}. | {interjection}, {same}, {same}. | {interjection}, {same}, {name}. |
        {interjection}, {same}! | {interjection}, {same}, {same}! |
        It was {quality}, very, very {quality}. | {name} {went}, and {went}, and {went}.
        """,
    ),
}
CONVERSATION = {
    kind: (count, [template.strip() for template in re.split(r"[|\n]", templates) if template.strip()])
    for kind, (count, templates) in _KINDS.items()
}
