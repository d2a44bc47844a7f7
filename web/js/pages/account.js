/** The account page: a fresh secret is selected, ready to copy. */

const secret = document.getElementById("secret");
if (secret) getSelection()?.selectAllChildren(secret);

export {};
