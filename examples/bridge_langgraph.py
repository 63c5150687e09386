"""A LangGraph agent that keeps its checkpoints in thence: every run continues the last one.

    python examples/bridge_langgraph.py HOME     run it twice; everything is written below HOME

The model is a function, so that it runs offline. Requires
`pip install 'thence[langgraph]' langgraph`.
"""

from __future__ import annotations

import sys

from langchain_core.messages import AIMessage, HumanMessage
from langgraph.graph import START, MessagesState, StateGraph

import thence
from thence.bridge.langgraph import JournalSaver


def call_model(state: MessagesState) -> dict[str, list[AIMessage]]:
    """Reply with the number of messages so far; yours calls an API."""
    return {"messages": [AIMessage(f"I remember {len(state['messages'])} messages.")]}


def main(home: str) -> None:
    """Run one turn of the thread "demo"."""
    saver = JournalSaver(thence.Journal(home))
    graph = StateGraph(MessagesState)
    graph.add_node("model", call_model)
    graph.add_edge(START, "model")
    agent = graph.compile(checkpointer=saver)
    config = {"configurable": {"thread_id": "demo"}}
    state = agent.invoke({"messages": [HumanMessage("Do you remember?")]}, config)
    checkpoints = list(saver.list(config))
    print(f"agent:  {state['messages'][-1].content}")
    print(f"stored: {len(checkpoints)} checkpoints in session {saver.name_of('demo')[:8]}")
    saver.close()


if __name__ == "__main__":
    main(sys.argv[1])
